package concurrency_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// TestSlowRatePassesOn: on a real etcd, the tokens of a rate below one per second pass from one session to the next, and no
// session has one that another one has taken (A170 in internal/proof/tested-failures.md).
func TestSlowRatePassesOn(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const burst = 3
	taken := 0
	for range burst + 2 {
		s, _ := f.Session(idle())
		within, cancel := context.WithTimeout(ctx, soon)
		begun := time.Now()
		err := rateLimiter(t, s, "seldom", 1e-4, burst).Wait(within)
		cancel()
		if taken < burst {
			require.NoError(t, err)
			taken++
		} else {
			var exceeded *concurrency.RateExceededError
			require.ErrorAs(t, err, &exceeded)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Greater(t, exceeded.RetryAfter, time.Hour)
			require.Less(t, time.Since(begun), soon/2, "it knows that at once")
		}
		require.NoError(t, s.Close(ctx))
		keys := f.Keys("/bucket/")
		require.Len(t, keys, 2)
		require.True(t, strings.HasSuffix(keys[0], "/bucket/seldom/left") && strings.HasSuffix(keys[1], "/bucket/seldom/timer"), keys)
	}
}

// A170: etcd applies each write of the tokens twice, as after a connection that breaks, and the process sees the second
// answer. The record is its own, and its lease stays: without it all tokens would be there again.
func TestSlowRateWritesThatArriveTwice(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const burst = 3
	taken := 0
	for range 3 {
		c := f.NewClient(t, nil)
		c.KV = arrivesTwice{c.KV}
		s := f.SessionOn(c.Client, idle())
		l := rateLimiter(t, s, "seldom", 1e-4, burst)
		for range 2 {
			within, cancel := context.WithTimeout(ctx, soon)
			if l.Wait(within) == nil {
				taken++
			}
			cancel()
		}
		require.NoError(t, s.Close(ctx))
	}
	require.Equal(t, burst, taken)
}

// arrivesTwice sends each Txn that writes tokens a second time, and returns the second answer.
type arrivesTwice struct{ clientv3.KV }

func (k arrivesTwice) Txn(ctx context.Context) clientv3.Txn { return &twiceTxn{ctx: ctx, kv: k.KV} }

type twiceTxn struct {
	clientv3.Txn
	ctx             context.Context
	kv              clientv3.KV
	cmps            []clientv3.Cmp
	then, otherwise []clientv3.Op
}

func (x *twiceTxn) If(cmps ...clientv3.Cmp) clientv3.Txn { x.cmps = cmps; return x }
func (x *twiceTxn) Then(ops ...clientv3.Op) clientv3.Txn { x.then = ops; return x }
func (x *twiceTxn) Else(ops ...clientv3.Op) clientv3.Txn { x.otherwise = ops; return x }

func (x *twiceTxn) Commit() (*clientv3.TxnResponse, error) {
	send := func() (*clientv3.TxnResponse, error) {
		return x.kv.Txn(x.ctx).If(x.cmps...).Then(x.then...).Else(x.otherwise...).Commit()
	}
	for _, op := range x.then {
		if op.IsPut() && strings.Contains(string(op.KeyBytes()), "/bucket/") {
			if resp, err := send(); err != nil {
				return resp, err
			}
			break
		}
	}
	return send()
}

// A610: on a real etcd, the answers to the first writes of the tokens are lost: the whole burst is there, and no more.
func TestSlowRateLosesAnswers(t *testing.T) {
	t.Parallel()
	f := shared(t)
	for _, lost := range []int{1, 3} {
		s, c := f.Session(idle())
		writes := func(_ string, msg any) bool {
			r, ok := msg.(*etcdserverpb.TxnRequest)
			return ok && len(r.Success) > 0 && strings.HasSuffix(string(r.Success[0].GetRequestPut().GetKey()), "/left")
		}
		inj := c.Inject(embedtest.Fault{Method: "Txn", Match: writes, Do: embedtest.DropResponse, Times: lost})
		l := rateLimiter(t, s, fmt.Sprint("seldom", lost), 1e-4, 3)
		for range 3 {
			require.NoError(t, l.Wait(ctxT(t)))
		}
		require.Equal(t, lost, inj.Hits())
		within, cancel := context.WithTimeout(ctxT(t), soon)
		require.ErrorIs(t, l.Wait(within), concurrency.ErrRateExceeded)
		cancel()
	}
}

// A record that cannot be read is one of no tokens, and it is replaced.
func TestSlowRateOfADamagedRecord(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	require.NoError(t, rateLimiter(t, s, "seldom", 0.9, 2).Wait(ctx))
	require.NoError(t, s.Close(ctx))
	left := f.Keys("/bucket/seldom/left")[0]
	other, _ := f.Session(idle())
	_, err := c.Put(ctx, left, "damaged")
	require.NoError(t, err)
	begun := time.Now()
	require.NoError(t, rateLimiter(t, other, "seldom", 0.9, 2).Wait(ctx))
	require.Greater(t, time.Since(begun), time.Second, "it begins without a token")
	resp, err := c.Get(ctx, left)
	require.NoError(t, err)
	require.NotEqual(t, "damaged", string(resp.Kvs[0].Value))
}

// takes returns how many tokens of a rate of so small a pace a new session takes at once, up to 5, and closes it.
func takes(t *testing.T, f fixture) (n int) {
	t.Helper()
	s, _ := f.Session(idle())
	l := rateLimiter(t, s, "seldom", 1e-4, 3)
	for ; n < 5; n++ {
		within, cancel := context.WithTimeout(ctxT(t), soon)
		err := l.Wait(within)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, concurrency.ErrRateExceeded)
			break
		}
	}
	require.NoError(t, s.Close(ctxT(t)))
	return n
}

// What docs/storage.md says of the stored tokens of a slow rate that are changed by hand.
func TestSlowRateChangedByHand(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	clock, left := func() string { return f.Keys("/bucket/seldom/timer")[0] }, func() string { return f.Keys("/bucket/seldom/left")[0] }
	require.Equal(t, 3, takes(t, f))
	require.Zero(t, takes(t, f))
	for what, change := range map[string]func() error{
		"the record is deleted":        func() error { _, err := f.Client().Delete(ctx, left()); return err },
		"the clock is deleted":         func() error { _, err := f.Client().Delete(ctx, clock()); return err },
		"the clock's lease is revoked": func() error { return f.RevokeLease(ctx, clientv3.LeaseID(keyOf(t, f, clock()).Lease)) },
		"both are deleted": func() error {
			_, err := f.Client().Delete(ctx, strings.TrimSuffix(left(), "left"), clientv3.WithPrefix())
			return err
		},
	} {
		require.NoError(t, change(), what)
		require.Equal(t, 3, takes(t, f), what)
		require.Zero(t, takes(t, f), what)
	}
}

func keyOf(t *testing.T, f fixture, key string) *mvccpb.KeyValue {
	t.Helper()
	resp, err := f.Client().Get(ctxT(t), key)
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1)
	return resp.Kvs[0]
}

// A restored etcd has the tokens of the backup: those that were taken since can be taken again, and no others.
func TestSlowRateAfterARestore(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	require.Equal(t, 3, takes(t, f))
	b, err := f.Backup(ctxT(t))
	require.NoError(t, err)
	require.Zero(t, takes(t, f))
	require.NoError(t, f.Restore(ctxT(t), b))
	require.Zero(t, takes(t, f), "they were taken before the backup")
	_, err = f.Client().Delete(ctxT(t), f.Keys("/bucket/seldom/left")[0])
	require.NoError(t, err)
	full, err := f.Backup(ctxT(t))
	require.NoError(t, err)
	require.Equal(t, 3, takes(t, f))
	require.NoError(t, f.Restore(ctxT(t), full))
	require.Equal(t, 3, takes(t, f), "once more")
}

// A263: etcd refuses a read of the rate, while the process has a share that it may use: a call of Wait gets its token.
func TestWaitOutlivesARefusedRead(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, c := f.Session(idle())
	l := rateLimiter(t, s, "often", 1, 1)
	require.NoError(t, l.Wait(ctxT(t)))
	inj := c.Inject(embedtest.Fault{Do: embedtest.FailWith, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
	require.NoError(t, l.Wait(ctxT(t)))
	require.Positive(t, inj.Hits())
	inj.Remove()
}
