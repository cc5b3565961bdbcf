package idempotency_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// bounded is an instance whose client sends no larger messages.
func (f fixture) bounded(t *testing.T, most int) instance {
	t.Helper()
	c := f.NewClient(t, &embedtest.ClientOptions{Configure: func(cfg *clientv3.Config) { cfg.MaxCallSendMsgSize = most }})
	s := f.SessionOn(c.Client, nil)
	st, err := idempotency.NewStore(s, "store", nil)
	require.NoError(t, err)
	return instance{st, s, c}
}

// What is given to Attach is too large for the client, for etcd, or for etcd's gRPC: Commit
// says so, and the caller can commit without.
func TestAttachIsTooLarge(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for name, size := range map[string]struct{ client, with int }{
		"for the client":  {0, 2 << 20}, // 2 MiB is its default
		"for etcd":        {8 << 20, 7 << 18},
		"for etcd's gRPC": {8 << 20, 3 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := f.bounded(t, size.client)
			k := key(name)
			at := begin(t, a, k)
			at.Attach(nil, clientv3.OpPut(f.Root+"receipt", strings.Repeat("x", size.with)))
			require.ErrorIs(t, at.Commit(ctxT(t), []byte("x")), idempotency.ErrInvalid)
			require.NoError(t, at.Err())
			rejected(t, a, k)
			require.NoError(t, at.Commit(ctxT(t), []byte("y")))
			require.Equal(t, "y", string(replayed(t, a, k).Value))
			require.Zero(t, a.Stats().Pending)
		})
	}
}

// Where messages may be smaller than etcd's default a result may not fit: the request is
// done, and its result is not kept.
func TestResultIsTooLarge(t *testing.T) {
	t.Parallel()
	f := shared(t)
	server := f.instance(nil, nil)
	for name, tt := range map[string]struct {
		in     instance
		size   int
		refuse bool // as etcd does with a smaller --max-request-bytes
	}{
		"part, client":   {in: f.bounded(t, 512<<10), size: 600 << 10},
		"record, client": {in: f.bounded(t, 64<<10), size: 100 << 10},
		"part, etcd":     {in: server, size: 600 << 10, refuse: true},
		"record, etcd":   {in: f.instance(nil, nil), size: 100 << 10, refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := key(name)
			at := begin(t, tt.in, k)
			if tt.refuse {
				defer tt.in.client.Inject(embedtest.Fault{Method: "Txn", Times: 1, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCRequestTooLarge}).Remove()
			}
			require.NoError(t, at.Commit(ctxT(t), bytes.Repeat([]byte("x"), tt.size)))
			require.True(t, replayed(t, tt.in, k).Omitted)
			require.True(t, replayed(t, server, k).Omitted, "for others, too")
			require.Zero(t, tt.in.Stats().Pending)
		})
	}
}

// A recovery point that is too large for a message is not recorded, and the attempt continues.
func TestStepIsTooLarge(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.bounded(t, 64<<10)
	at := begin(t, in, key("1"))
	_, err := idempotency.Step(at, "a", func(context.Context) (string, error) { return strings.Repeat("x", 100<<10), nil })
	require.ErrorIs(t, err, idempotency.ErrTooLarge)
	v, err := idempotency.Step(at, "b", func(context.Context) (string, error) { return "y", nil })
	require.NoError(t, err)
	require.Equal(t, "y", v)
	require.NoError(t, at.Commit(ctxT(t), []byte("x")))
	require.Equal(t, "x", string(replayed(t, in, key("1")).Value))
}

// A212: the outcome is recorded, its answer is lost, and another member of etcd refuses the next copy as too large. The
// outcome is the one that is recorded, with its result.
func TestTooLargeAfterAnUnansweredTry(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"in the record": 100 << 10, "in parts": 300 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			a, b := f.instance(nil, nil), f.instance(nil, nil)
			at := begin(t, a, key("1"))
			applied := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.DropResponse})
			refused := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCRequestTooLarge})
			want := bytes.Repeat([]byte("x"), size)
			require.NoError(t, at.Commit(ctxT(t), want))
			require.Equal(t, 1, applied.Hits())
			require.Equal(t, 1, refused.Hits())
			for _, in := range []instance{a, b} {
				out := replayed(t, in, key("1"))
				require.False(t, out.Omitted)
				require.True(t, bytes.Equal(want, out.Value))
			}
		})
	}
}
