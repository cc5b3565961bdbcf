package embedtest

import (
	"context"
	"io"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// stream is the interceptor that applies faults to the messages of streams and counts them.
func (i *interceptor) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, fullMethod string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	method := shortName(fullMethod)
	i.counts.add(method)
	ctx, cancel := context.WithCancel(ctx)
	raw, err := streamer(ctx, desc, cc, fullMethod, opts...)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &faultStream{ClientStream: raw, interceptor: i, method: method, ctx: ctx, cancel: cancel}
	i.counts.opened(method)
	context.AfterFunc(ctx, func() { i.counts.ended(method) })
	return s, nil
}

// faultStream is the stream that the caller gets. As with any gRPC stream, at most one
// goroutine sends and at most one receives at a time.
type faultStream struct {
	grpc.ClientStream
	*interceptor
	method string
	ctx    context.Context // canceled by cancel, which ends the stream
	cancel context.CancelFunc

	mu     sync.Mutex
	broken error // by FailWith
}

func (s *faultStream) SendMsg(msg any) error {
	if s.brokenBy() != nil {
		return io.EOF
	}
	inj := s.take(msg, Pass, HoldRequest, FailWith)
	if inj == nil {
		return s.send(msg)
	}
	f := &inj.f
	switch f.Do {
	case FailWith:
		s.fail(inj)
		return io.EOF // as in gRPC: RecvMsg returns the reason
	case HoldRequest:
		released := inj.released()
		inj.hit()
		if err := s.faults.wait(s.ctx, released); err != nil {
			return err
		}
	}
	call(f.Before)
	err := s.send(msg)
	if f.Do == Pass {
		inj.hit()
	}
	return err
}

func (s *faultStream) send(msg any) error {
	s.counts.add(s.method + messageKind(msg))
	return s.ClientStream.SendMsg(msg)
}

func (s *faultStream) RecvMsg(msg any) error {
	for {
		if err := s.ClientStream.RecvMsg(msg); err != nil {
			s.cancel()
			if broken := s.brokenBy(); broken != nil {
				return broken
			}
			return err
		}
		inj := s.take(msg, Pass, DropResponse, HoldResponse, FailWith)
		if inj == nil {
			return nil
		}
		f := &inj.f
		call(f.After)
		switch f.Do {
		case Pass:
			inj.hit()
			return nil
		case DropResponse:
			inj.hit() // the next RecvMsg resets msg first
		case HoldResponse:
			released := inj.released()
			inj.hit()
			return s.faults.wait(s.ctx, released)
		case FailWith:
			s.fail(inj)
			return f.err()
		}
	}
}

func (s *faultStream) take(msg any, actions ...Action) *Injection {
	return s.faults.take(s.method, msg, func(f *Fault) bool {
		return f.Method == s.method && slices.Contains(actions, f.Do)
	})
}

func (s *faultStream) fail(inj *Injection) {
	call(inj.f.Before)
	s.mu.Lock()
	s.broken = inj.f.err()
	s.mu.Unlock()
	s.cancel()
	inj.hit()
}

func (s *faultStream) brokenBy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// messageKind returns the suffix of a message's name in Client.Requests.
func messageKind(msg any) string {
	if w, ok := msg.(*pb.WatchRequest); ok && w.GetCreateRequest() == nil {
		if w.GetCancelRequest() != nil {
			return ".Cancel"
		}
		return ".Progress"
	}
	return ".Send"
}
