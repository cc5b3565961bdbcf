package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// Trap S5: an outcome whose write takes long is on a lease that was granted before it. It is moved to
// another lease, so that it is kept for the whole retention, counted from the recording.
func TestTrapS5LateCommit(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a lease to age: 6 s")
	}
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, &idempotency.Options{Retain: 10 * time.Second})
	for name, parts := range map[string]int{"small": 0, "in parts": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := begin(t, a, key(name))
			seen := f.Client().Watch(ctxT(t), f.Root, clientv3.WithPrefix())
			inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.FailWith, Times: -1})
			done := make(chan error, 1)
			go func() { done <- at.Commit(ctxT(t), make([]byte, parts<<20+1)) }()
			require.Eventually(t, func() bool { return inj.Hits() > 0 }, soon, 5*time.Millisecond)
			begun := time.Now()
			for time.Since(begun) < 2100*time.Millisecond { // the age of a lease is what this is about
				time.Sleep(10 * time.Millisecond)
			}
			inj.Remove()
			require.NoError(t, got(t, done, "commit"))
			hash := string(a.Ref(key(name)))[17:]
			leases := map[string]map[int64]bool{} // of the outcome, by key
			moved := func() bool {
				for _, l := range leases {
					if len(l) < 2 {
						return false
					}
				}
				return len(leases) > parts
			}
			for resp := range seen {
				for _, ev := range resp.Events {
					k := string(ev.Kv.Key)
					if ev.Type != clientv3.EventTypePut || !strings.Contains(k, hash) || strings.HasSuffix(k, "/claim") || strings.Contains(string(ev.Kv.Value), "working") {
						continue
					}
					if leases[k] == nil {
						leases[k] = map[int64]bool{}
					}
					leases[k][ev.Kv.Lease] = true
				}
				if moved() {
					break
				}
			}
			require.True(t, moved(), "%v", leases)
			require.Len(t, replayed(t, a, key(name)).Value, parts<<20+1)
		})
	}
}

// age waits until the lease that is at hand for outcomes is too old for one of 10 s that is
// recorded now: it was granted for 12 s, before begun.
func age(begun time.Time) {
	for time.Since(begun) < 2100*time.Millisecond {
		time.Sleep(10 * time.Millisecond)
	}
}

// keptFor returns for how long the keys of an outcome are kept from a time on, at least.
func (f fixture) keptFor(from time.Time, part string, n int) time.Duration {
	f.T.Helper()
	resp, err := f.Client().Get(ctxT(f.T), f.Root, clientv3.WithPrefix())
	require.NoError(f.T, err)
	least, found := 1000*time.Hour, 0
	for _, kv := range resp.Kvs {
		if !strings.Contains(string(kv.Key), part) {
			continue
		}
		found++
		asked := time.Now()
		left, err := f.Client().TimeToLive(ctxT(f.T), clientv3.LeaseID(kv.Lease))
		require.NoError(f.T, err)
		least = min(least, asked.Sub(from)+time.Duration(left.TTL)*time.Second)
	}
	require.Equal(f.T, n, found)
	return least
}

// An outcome whose write takes long, and whose session is closed as soon as it is reported, is kept for
// the whole retention: it is reported when it is on a lease that lives that long.
func TestRetentionWhenClosed(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a lease to age: 3 s")
	}
	t.Parallel()
	const retain = 10 * time.Second
	failed := errors.New("failed")
	refuse := idempotency.OnLost(idempotency.Refuse)
	for name, tt := range map[string]struct {
		parts int
		work  func(in instance, busy func()) error
	}{
		"a result": {0, func(in instance, busy func()) error {
			at := begin(t, in, key("1"), refuse)
			busy()
			return at.Commit(ctxT(t), []byte("x"))
		}},
		"in parts": {2, func(in instance, busy func()) error {
			at := begin(t, in, key("1"), refuse)
			busy()
			return at.Commit(ctxT(t), make([]byte, 2<<20))
		}},
		"a failure, forgotten": {0, func(in instance, busy func()) error {
			_, err := idempotency.Do(ctxT(t), in.Store, key("1"), "payload", func(context.Context, *idempotency.Attempt) (int, error) {
				busy()
				return 0, failed
			})
			if !errors.Is(err, failed) || errors.Is(err, idempotency.ErrNotRecorded) {
				return errors.Join(errors.New("not released"), err)
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			a := f.instance(nil, &idempotency.Options{Retain: retain})
			var inj *embedtest.Injection
			err := tt.work(a, func() {
				begun := time.Now()
				inj = a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.HoldRequest})
				// The next lease takes its time: nothing that continues in the background has it
				// before Close has ended.
				a.client.Inject(embedtest.Fault{Method: "LeaseGrant", Before: func() { time.Sleep(300 * time.Millisecond) }, Times: -1})
				go func() {
					if inj.WaitHit(ctxT(t)) == nil {
						age(begun)
						inj.Release()
					}
				}()
			})
			reported := time.Now()
			require.NoError(t, err)
			require.NoError(t, a.sess.Close(ctxT(t)))
			require.Equal(t, 1, inj.Hits())
			require.GreaterOrEqual(t, f.keptFor(reported, "/idem/", 1+tt.parts), retain)
		})
	}
}

// An outcome was recorded by the first try, whose answer was lost, on a lease that is old by now; the
// next try uses a fresh lease. The lease of the record counts.
func TestRetentionAfterALostAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a lease to age: 5 s")
	}
	t.Parallel()
	const retain = 10 * time.Second
	for name, parts := range map[string]int{"small": 0, "in parts": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			a, b := f.instance(nil, &idempotency.Options{Retain: retain}), f.instance(nil, nil)
			at := begin(t, a, key("1"))
			begun := time.Now()
			inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.DropResponse, Times: -1, Err: rpctypes.ErrGRPCPermissionDenied})
			result := make([]byte, parts<<20+1)
			require.ErrorIs(t, at.Commit(ctxT(t), result), idempotency.ErrNotRecorded)
			age(begun)
			from := time.Now()
			inj.Remove()
			require.NoError(t, a.sess.Close(ctxT(t)), "it waits for the attempt")
			require.EqualValues(t, 1, a.Stats().Done)
			require.GreaterOrEqual(t, f.keptFor(from, "/idem/", 1+(len(result)-1)>>20+min(parts, 1)), retain)
			require.Equal(t, result, replayed(t, b, key("1")).Value)
		})
	}
}
