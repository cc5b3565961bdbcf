package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A179: an operator puts a former record of an attempt again, of when it had begun. It says that the attempt works, for as
// long as its session lives. The attempt is fenced, unless it is lost by its own end, and has the record say so: the request
// does not wait for the end of the session.
func TestRecordPutByHand(t *testing.T) {
	t.Parallel()
	fenced := func(t *testing.T, err error) { require.ErrorIs(t, err, idempotency.ErrFenced) }
	commit := func(t *testing.T, at *idempotency.Attempt) { fenced(t, at.Commit(ctxT(t), []byte("a"))) }
	for name, end := range map[string]func(t *testing.T, at *idempotency.Attempt){
		"commit":  commit,
		"release": func(t *testing.T, at *idempotency.Attempt) { fenced(t, at.Release(ctxT(t))) },
		"step, abandon": func(t *testing.T, at *idempotency.Attempt) {
			fenced(t, at.SetNote("order 8"))
			require.NoError(t, at.Abandon(ctxT(t)))
		},
		"MaxExecution":   func(t *testing.T, at *idempotency.Attempt) { <-at.Context().Done() },
		"commit, behind": func(t *testing.T, at *idempotency.Attempt) { <-at.Context().Done(); commit(t, at) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			a, b := f.instance(brisk(), nil), f.instance(nil, nil)
			opts := []idempotency.Option{}
			if name == "MaxExecution" || name == "commit, behind" {
				opts = append(opts, idempotency.MaxExecution(time.Second))
			}
			at := begin(t, a, key("1"), opts...)
			record := f.working()[0]
			former := f.Values("/record/")[record]
			restore := func() {
				if _, err := f.Client().Put(context.Background(), record, former); err != nil {
					t.Error(err)
				}
			}
			require.NoError(t, at.SetNote("order 7"))
			twice := &embedtest.Injection{}
			if name == "commit, behind" {
				f.noneWorks()
			} else { // once more, before the put that says that it is lost
				twice = a.client.Inject(embedtest.Fault{Method: "Txn", Match: isLoss, Before: restore})
			}
			restore()
			end(t, at)
			f.noneWorks()
			if name != "commit, behind" {
				require.Equal(t, 1, twice.Hits())
			}
			require.Equal(t, 2, begin(t, b, key("1"), idempotency.Wait(0)).Attempt())
			require.False(t, f.guarded(at))
		})
	}
}

// A179: what an operator puts again is, letter by letter, the record of an attempt in progress. The attempt goes on.
func TestRecordPutAgainByHand(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	again := func() {
		t.Helper()
		record := f.working()[0]
		_, err := f.Client().Put(ctxT(t), record, f.Values("/record/")[record])
		require.NoError(t, err)
	}
	again()
	_, err := idempotency.Step(at, "one", func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	again()
	require.True(t, f.guarded(at))
	require.NoError(t, at.Commit(ctxT(t), []byte("a")))
	resp, err := f.Client().Get(ctxT(t), f.Keys("/record/")[0])
	require.NoError(t, err)
	left, err := f.Client().TimeToLive(ctxT(t), clientv3.LeaseID(resp.Kvs[0].Lease))
	require.NoError(t, err)
	require.Positive(t, left.TTL, "it is on a lease again")
	require.Equal(t, "a", string(replayed(t, b, key("1")).Value))
}
