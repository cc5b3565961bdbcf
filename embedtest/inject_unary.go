package embedtest

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that deepCopy uses
	"google.golang.org/grpc/status"
)

// held is a unary request that can be sent after its caller has returned: it has a copy of
// the message, a reply of its own and a context that does not end with the caller's.
type held struct {
	fault  *Fault
	ctx    context.Context
	method string
	req    any
	reply  any
	invoke func(ctx context.Context, req, reply any) error

	done   chan struct{} // closed when result is set
	result LateResponse
}

func (h *held) send() LateResponse {
	call(h.fault.Before)
	reply := newLike(h.reply)
	err := h.invoke(h.ctx, h.req, reply)
	call(h.fault.After)
	h.result = LateResponse{Method: h.method, Err: err}
	if err == nil {
		h.result.Response = reply
	}
	close(h.done)
	return h.result
}

func (h *held) again() *held {
	return &held{fault: h.fault, ctx: h.ctx, method: h.method, req: h.req, reply: h.reply, invoke: h.invoke, done: make(chan struct{})}
}

func call(hook func()) {
	if hook != nil {
		hook()
	}
}

// unary is the interceptor that applies faults to unary calls. It runs inside the retries of
// etcd's client.
func (i *interceptor) unary(ctx context.Context, fullMethod string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	method := shortName(fullMethod)
	invoke := func(ctx context.Context, req, reply any) error {
		i.counts.add(method)
		return invoker(ctx, fullMethod, req, reply, cc, opts...)
	}
	inj := i.faults.take(method, req, func(f *Fault) bool { return f.Method == method || f.Method == "" })
	if inj == nil {
		return invoke(ctx, req, reply)
	}
	f := &inj.f
	switch f.Do {
	case Pass:
		call(f.Before)
		err := invoke(ctx, req, reply)
		call(f.After)
		inj.hit()
		return err
	case FailWith:
		call(f.Before)
		inj.hit()
		return f.err()
	}

	copied, err := deepCopy(req)
	if err != nil {
		return err
	}
	opts = forLater(opts)
	h := &held{
		fault: f, ctx: context.WithoutCancel(ctx), method: method,
		req: copied, reply: reply, invoke: invoke, done: make(chan struct{}),
	}
	if f.Do == HoldRequest {
		err = i.faults.holdRequest(ctx, inj, h)
	} else {
		err = i.faults.withhold(ctx, inj, h)
	}
	if err != nil {
		return err
	}
	return copyInto(reply, h.result.Response)
}

// holdRequest keeps the request until Release and waits for the response.
func (fs *faults) holdRequest(ctx context.Context, inj *Injection, h *held) error {
	inj.keep(h)
	inj.hit()
	if err := fs.wait(ctx, h.done); err != nil {
		return err
	}
	return h.result.Err
}

// withhold sends the request, whether or not ctx ends, and drops or holds the response.
func (fs *faults) withhold(ctx context.Context, inj *Injection, h *held) error {
	var released <-chan struct{}
	responded := make(chan struct{})
	go func() {
		h.send()
		if h.fault.Do == Duplicate {
			inj.keep(h.again())
		}
		released = inj.released() // by the first Release after the hit
		inj.hit()
		close(responded)
	}()
	if err := fs.wait(ctx, responded); err != nil {
		return err
	}
	if h.fault.Do != HoldResponse {
		return h.fault.err()
	}
	if err := fs.wait(ctx, released); err != nil {
		return err
	}
	return h.result.Err
}

// forLater removes the options by which gRPC writes to memory of the caller when the call
// ends: the caller may have returned by then.
func forLater(opts []grpc.CallOption) []grpc.CallOption {
	return slices.DeleteFunc(slices.Clone(opts), func(o grpc.CallOption) bool {
		switch o.(type) {
		case grpc.PeerCallOption, grpc.HeaderCallOption, grpc.TrailerCallOption:
			return true
		}
		return false
	})
}

// keep adds a request for the next Release to send.
func (i *Injection) keep(h *held) {
	i.mu.Lock()
	i.held = append(i.held, h)
	i.mu.Unlock()
}

// wait waits until c is closed. If ctx ends or the client is closed first, it returns the
// error that gRPC returns in that case.
func (fs *faults) wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-fs.closed:
		return status.Error(codes.Canceled, "embedtest: the client is closed")
	}
}

// deepCopy copies a message with gRPC's codec, which works with the messages of all versions
// of etcd's API.
func deepCopy(msg any) (any, error) {
	c := newLike(msg)
	return c, copyInto(c, msg)
}

func newLike(msg any) any { return reflect.New(reflect.TypeOf(msg).Elem()).Interface() }

func copyInto(dst, src any) error {
	codec := encoding.GetCodecV2("proto")
	data, err := codec.Marshal(src)
	if err != nil {
		return fmt.Errorf("embedtest: copy %T: %w", src, err)
	}
	defer data.Free()
	if err := codec.Unmarshal(data, dst); err != nil {
		return fmt.Errorf("embedtest: copy %T: %w", src, err)
	}
	return nil
}
