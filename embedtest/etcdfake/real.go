package etcdfake

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// Endpoints has the Server be the real etcd at these endpoints, for example those of an
// embedtest.Cluster: the same test then runs on it, with the same faults of its clients.
// Time is real, and [Test] makes no bubble.
//
// Expire revokes the lease and Compact compacts the real history, so the cluster must be
// the test's own. SetLeader, ShiftClock and Backup skip the test.
func Endpoints(endpoints ...string) Option {
	return func(s *Server) { s.real = &realEtcd{endpoints: slices.Clone(endpoints)} }
}

// realEtcd is what a Server asks a real etcd for the test. Its methods fail the test at an
// error.
type realEtcd struct {
	endpoints []string
	tb        TB
	client    func() *clientv3.Client
}

// realTimeout bounds each request.
const realTimeout = 10 * time.Second

func (r *realEtcd) ask(what string, f func(ctx context.Context, c *clientv3.Client) error) {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), realTimeout)
	defer cancel()
	if err := f(ctx, r.client()); err != nil {
		r.tb.Fatalf("etcdfake: %s on %v: %v", what, r.endpoints, err)
	}
}

// expire revokes a lease, and reports whether there was one.
func (r *realEtcd) expire(id clientv3.LeaseID) (lived bool) {
	r.tb.Helper()
	r.ask("expire a lease", func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Revoke(ctx, id)
		if lived = err == nil; errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil
		}
		return err
	})
	return lived
}

func (r *realEtcd) compact() (revision int64) {
	r.tb.Helper()
	revision = r.revision()
	r.ask("compact", func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Compact(ctx, revision)
		if errors.Is(err, rpctypes.ErrCompacted) {
			return nil
		}
		return err
	})
	return revision
}

func (r *realEtcd) revision() (revision int64) {
	r.tb.Helper()
	r.ask("read the revision", func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Get(ctx, "etcdfake/revision", clientv3.WithCountOnly())
		if err == nil {
			revision = resp.Header.GetRevision()
		}
		return err
	})
	return revision
}

func (r *realEtcd) keys(prefix string) (keys []string) {
	r.tb.Helper()
	r.ask("list keys", func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range resp.Kvs {
			keys = append(keys, string(kv.Key))
		}
		return nil
	})
	return keys
}

func (r *realEtcd) leases() (ids []clientv3.LeaseID) {
	r.tb.Helper()
	r.ask("list leases", func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Leases(ctx)
		if err != nil {
			return err
		}
		for _, l := range resp.Leases {
			ids = append(ids, l.ID)
		}
		return nil
	})
	return ids
}

// realCall is a unary call to a real etcd, which does not end with its caller.
func realCall(ctx context.Context, fullMethod string, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts []grpc.CallOption) func(req any) (any, error) {
	return func(req any) (any, error) {
		resp := reflect.New(reflect.TypeOf(reply).Elem()).Interface()
		// The caller may have returned when options for it would be written to.
		opts := slices.DeleteFunc(slices.Clone(opts), func(o grpc.CallOption) bool {
			switch o.(type) {
			case grpc.PeerCallOption, grpc.HeaderCallOption, grpc.TrailerCallOption:
				return true
			}
			return false
		})
		if err := invoke(context.WithoutCancel(ctx), fullMethod, req, resp, cc, opts...); err != nil {
			return nil, err
		}
		return resp, nil
	}
}

// realStream is a stream to a real etcd.
type realStream struct {
	grpc.ClientStream
	cancel context.CancelFunc
}

// openReal opens the stream behind t.
func (t *clientStream) openReal(desc *grpc.StreamDesc, cc *grpc.ClientConn, fullMethod string, streamer grpc.Streamer, opts []grpc.CallOption) error {
	ctx, cancel := context.WithCancel(t.ctx)
	stream, err := streamer(ctx, desc, cc, fullMethod, opts...)
	if err != nil {
		cancel()
		return err
	}
	r := &realStream{stream, cancel}
	t.remote = r
	t.client.server.start(func() { r.receive(t) })
	return nil
}

// take sends a message. If that fails, receive has the reason.
func (r *realStream) take(msg any) (again <-chan struct{}) {
	_ = r.SendMsg(msg)
	return nil
}

// end has the server end the stream, when it has answered what was sent.
func (r *realStream) end() { _ = r.CloseSend() }

func (r *realStream) forget() { r.cancel() }

// receive puts what the server sends on its way, until the stream ends.
func (r *realStream) receive(t *clientStream) {
	for {
		var msg any = new(pb.WatchResponse)
		if t.method == keepAlive {
			msg = new(pb.LeaseKeepAliveResponse)
		}
		if err := r.RecvMsg(msg); err != nil {
			t.fail(err)
			return
		}
		t.receive(msg)
	}
}
