package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// lags is the KV of a client whose serializable reads are answered by one member, and all else by others.
type lags struct {
	clientv3.KV
	member clientv3.KV
}

func (l lags) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if clientv3.OpGet(key, opts...).IsSerializable() {
		return l.member.Get(ctx, key, opts...)
	}
	return l.KV.Get(ctx, key, opts...)
}

// A531: etcd is out of space, and the member that answers a process's reads is behind: it has nothing of requests that
// another process has begun or done since. Their claims are refused before etcd compares what there is. Each call is answered
// from the record that the majority has, and none with ErrUnseen, after which a middleware with FailOpen executes the request
// again; so are the calls of a process that has learned of the lack of space, and those that have read nothing before.
func TestSeenWithoutSpaceByALaggingMember(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts idempotency.Options
		call []idempotency.Option
	}{
		"read at the member":            {opts: idempotency.Options{NearQuota: 2}},
		"read at the member, near full": {},
		"LikelyNew":                     {opts: idempotency.Options{NearQuota: 2}, call: []idempotency.Option{idempotency.LikelyNew()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fixture{testkit.Own(t, 3)}
			behind := (f.Leader() + 1) % 3
			others := append(f.Endpoints()[:behind:behind], f.Endpoints()[behind+1:]...)
			at := func(endpoints ...string) *embedtest.Client {
				return f.NewClient(t, &embedtest.ClientOptions{Endpoints: endpoints})
			}
			long := &concurrency.SessionOptions{TTL: 300 * time.Second} // so long one member may answer
			on := func(c *embedtest.Client, opts *idempotency.Options) instance {
				sess := f.SessionOn(c.Client, long)
				st, err := idempotency.NewStore(sess, "store", opts)
				require.NoError(t, err)
				return instance{st, sess, c}
			}
			member, client := at(f.Endpoints()[behind]), at(others...)
			client.KV = lags{client.KV, member.KV}
			a, b := on(at(others...), nil), on(client, &tt.opts)
			require.NoError(t, begin(t, b, key("warm")).Release(ctxT(t))) // b has a lease for records, and knows a revision
			_, err := f.Client().Put(ctxT(t), f.Root+"last", "")
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				resp, err := member.Get(ctxT(t), f.Root+"last", clientv3.WithSerializable())
				return err == nil && len(resp.Kvs) > 0
			}, soon, 5*time.Millisecond)
			require.NoError(t, f.CutPeers(behind))
			recorded(t, a)
			require.NoError(t, f.SetNoSpace(ctxT(t), true))

			call := func(id, payload string) (*idempotency.Outcome, error) {
				at, out, err := b.Begin(ctxT(t), key(id), payload, append(tt.call, idempotency.Wait(0))...)
				require.Nil(t, at, id)
				return out, err
			}
			_, err = call("new", "payload")
			require.ErrorIs(t, err, idempotency.ErrNearQuota)
			require.ErrorIs(t, err, idempotency.ErrUnseen)
			out, err := call("done", "payload")
			require.NoError(t, err)
			require.Equal(t, "x", string(out.Value))
			_, err = call("done, and another payload", "another")
			require.ErrorIs(t, err, idempotency.ErrMismatch)
			_, err = call("in progress", "payload")
			require.ErrorIs(t, err, idempotency.ErrInProgress)
			_, err = call("unknown", "payload")
			require.ErrorIs(t, err, idempotency.ErrUnknown)
			_, err = call("lost", "payload")
			require.ErrorIs(t, err, idempotency.ErrNearQuota)
			require.NotErrorIs(t, err, idempotency.ErrUnseen)
			resp, err := member.Get(ctxT(t), f.Root, clientv3.WithPrefix(), clientv3.WithSerializable(), clientv3.WithCountOnly())
			require.NoError(t, err)
			all, err := f.Client().Get(ctxT(t), f.Root, clientv3.WithPrefix(), clientv3.WithCountOnly())
			require.NoError(t, err)
			require.Less(t, resp.Count, all.Count, "the member is still behind")
		})
	}
}
