package idempotency_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// isClaim, isCommit and isRelease match the Txns of an attempt, by what each
// does first.
func isClaim(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	fenced := func(c *etcdserverpb.Compare) bool { return strings.HasSuffix(string(c.Key), "/alive") }
	return ok && putsRecord(r, "working") && slices.ContainsFunc(r.Compare, fenced)
}

// isCommit also matches a release that keeps something, and a claim taken back that restores something.
func isCommit(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	return ok && (putsRecord(r, "done") || putsRecord(r, "failed") || putsRecord(r, "released"))
}

// isLoss matches the end of an attempt that is lost while its session lives.
func isLoss(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	return ok && putsRecord(r, "lost")
}

func isRelease(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	return ok && len(r.Success) > 0 && strings.Contains(string(r.Success[0].GetRequestDeleteRange().GetKey()), "/record/")
}

// putsRecord reports whether a Txn first puts a record in that state.
func putsRecord(r *etcdserverpb.TxnRequest, state string) bool {
	if len(r.Success) == 0 {
		return false
	}
	put := r.Success[0].GetRequestPut()
	return strings.Contains(string(put.GetKey()), "/record/") && strings.HasPrefix(string(put.GetValue()), `{"v":1,"state":"`+state+`"`)
}

func isRead(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.RangeRequest)
	return ok && strings.Contains(string(r.Key), "/idempotency/")
}

// I02: a rejected duplicate does not change the attempt in progress.
func TestRejectedLeavesTheClaim(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b, c := f.instance(nil, nil), f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	for _, in := range []instance{b, a, c, b} {
		rejected(t, in, key("1"))
	}
	require.NoError(t, at.Commit(ctxT(t), []byte("x")))
	require.Equal(t, "x", string(replayed(t, c, key("1")).Value))
	var in *idempotency.InProgressError
	at = begin(t, a, key("2"))
	_, _, err := b.Begin(ctxT(t), key("2"), "payload", idempotency.Wait(0))
	require.ErrorAs(t, err, &in)
	require.Equal(t, a.sess.Owner(), in.Owner)
	require.Equal(t, 1, in.Attempt)
	require.Positive(t, in.RetryAfter)
	require.NoError(t, at.Release(ctxT(t)))
}

// A duplicate that does not wait gets the present state, also if another one of its process waits and
// has not noticed yet that the attempt has ended.
func TestRejectedBehindAWaiter(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(at *idempotency.Attempt) error{
		"recorded": func(at *idempotency.Attempt) error { return at.Commit(context.Background(), []byte("x")) },
		"released": func(at *idempotency.Attempt) error { return at.Release(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			a, b := f.instance(nil, nil), f.instance(&concurrency.SessionOptions{TTL: time.Minute}, nil)
			at := begin(t, a, key("1"))
			held := b.client.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.HoldResponse, Times: -1, Match: func(_ string, msg any) bool {
				r, ok := msg.(*etcdserverpb.WatchResponse)
				return ok && slices.ContainsFunc(r.Events, func(e *mvccpb.Event) bool { return strings.Contains(string(e.Kv.Key), "/idempotency/") })
			}})
			waited := make(chan *idempotency.Attempt, 1)
			before := b.client.Requests()["Watch.Send"]
			go func() {
				at, _, err := b.Begin(ctxT(t), key("1"), "payload")
				if err != nil {
					t.Error(err)
				}
				waited <- at
			}()
			require.Eventually(t, func() bool { return b.client.Requests()["Watch.Send"] > before }, soon, 5*time.Millisecond, "b watches")

			_, _, err := b.Begin(ctxT(t), key("1"), "payload", idempotency.Wait(0))
			var in *idempotency.InProgressError
			require.ErrorAs(t, err, &in)
			require.Equal(t, a.sess.Owner(), in.Owner)
			require.NoError(t, end(at))
			require.NoError(t, held.WaitHit(ctxT(t)))

			_, rec, err := b.Begin(ctxT(t), key("1"), "payload", idempotency.Wait(0))
			mine := got(t, waited, "the waiter's answer")
			if name == "recorded" {
				require.NoError(t, err)
				require.Equal(t, "x", string(rec.Value))
				require.Nil(t, mine)
				return
			}
			require.ErrorAs(t, err, &in)
			require.Equal(t, b.sess.Owner(), in.Owner)
			require.Equal(t, mine.Attempt(), in.Attempt)
			require.NoError(t, mine.Release(ctxT(t)))
		})
	}
}

// I03: a duplicate whose wait ends does not change the attempt in progress.
func TestWaiterGivesUp(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b, c := f.instance(nil, nil), f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	for _, in := range []instance{a, b} {
		_, _, err := in.Begin(ctxT(t), key("1"), "payload", idempotency.Wait(20*time.Millisecond))
		require.ErrorIs(t, err, idempotency.ErrInProgress)
		short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, _, err = in.Begin(short, key("1"), "payload")
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	rejected(t, c, key("1"))
	require.NoError(t, at.Commit(ctxT(t), []byte("x")))
	require.Equal(t, "x", string(replayed(t, b, key("1")).Value))
}

// I06: duplicates get the real result, byte for byte, wherever they wait.
func TestWaitersGetTheResult(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	outcomes, before := make(chan *idempotency.Outcome, 10), b.client.Requests()["Watch.Send"]
	for n := range 10 {
		go func() {
			in := []instance{a, b}[n%2]
			_, rec, err := in.Begin(ctxT(t), key("1"), "payload")
			if err != nil {
				t.Error(err)
			}
			outcomes <- rec
		}()
	}
	require.Eventually(t, func() bool { return b.client.Requests()["Watch.Send"] > before }, soon, 5*time.Millisecond, "b watches")
	require.NoError(t, at.Commit(ctxT(t), []byte{0, 1, 0xff}))
	for range 10 {
		rec := got(t, outcomes, "the outcome")
		require.Equal(t, []byte{0, 1, 0xff}, rec.Value)
		require.Equal(t, at.Token(), rec.Token)
	}
}

// I04: the record is deleted between a claim that failed and the next read: the call claims again, and
// never runs without a claim.
func TestRecordGoesBetweenClaimAndRead(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	other := make(chan *idempotency.Attempt, 1)
	inj := b.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Before: func() {
		other <- begin(t, a, key("1")) // comes first
	}})
	again := b.client.Inject(embedtest.Fault{Method: "Range", Match: isRead, Skip: 1, Before: func() {
		if err := got(t, other, "the other's").Release(ctxT(t)); err != nil {
			t.Error(err)
		}
	}})
	at := begin(t, b, key("1"), idempotency.Wait(0))
	require.Equal(t, 1, inj.Hits())
	require.Equal(t, 1, again.Hits())
	require.Len(t, f.working(), 1)
	rejected(t, a, key("1"))
	require.NoError(t, at.Commit(ctxT(t), nil))
}

// I36: a claim, commit or release is applied and its answer lost, or it is sent twice, or it arrives
// late. It counts once, and no copy changes what is written after it.
func TestDoubtfulRequests(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]embedtest.Fault{
		"claim applied, not answered":   {Match: isClaim, Do: embedtest.DropResponse},
		"claim sent twice":              {Match: isClaim, Do: embedtest.Duplicate},
		"commit applied, not answered":  {Match: isCommit, Do: embedtest.DropResponse},
		"commit sent twice":             {Match: isCommit, Do: embedtest.Duplicate},
		"release applied, not answered": {Match: isRelease, Do: embedtest.DropResponse},
		"release sent twice":            {Match: isRelease, Do: embedtest.Duplicate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			a, b := f.instance(nil, nil), f.instance(nil, nil)
			fault.Method = "Txn"
			inj := a.client.Inject(fault)
			at := begin(t, a, key("1"))
			require.Equal(t, 1, at.Attempt())
			require.NoError(t, at.Release(ctxT(t)))
			require.Empty(t, f.Keys("/idempotency/"))
			at = begin(t, a, key("1"))
			require.NoError(t, at.Commit(ctxT(t), []byte("x")))
			require.Equal(t, 1, inj.Hits())
			_ = inj.Release() // the late copies
			rec := replayed(t, b, key("1"))
			require.Equal(t, "x", string(rec.Value))
			require.Equal(t, at.Token(), rec.Token)
			require.Empty(t, f.working())
			require.Len(t, f.Keys("/record/"), 1)
		})
	}
}

// A claim's caller gives up while the claim is in flight. Whenever it arrives, its function does not run,
// and the key is free; a lost attempt that it was to take over is lost as before.
func TestClaimGivenUp(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]embedtest.Action{
		"applied, and not answered":        embedtest.HoldResponse,
		"arrives when its caller has gone": embedtest.HoldRequest,
	} {
		for _, before := range []string{"nothing", "a lost attempt"} {
			t.Run(name+", after "+before, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				a, b := f.instance(nil, nil), f.instance(nil, nil)
				if before != "nothing" {
					require.NoError(t, begin(t, b, key("1")).Abandon(ctxT(t)))
				}
				inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: what})
				short, cancel := context.WithCancel(ctxT(t))
				done := make(chan error, 1)
				go func() {
					_, _, err := a.Begin(short, key("1"), "payload")
					done <- err
				}()
				require.NoError(t, inj.WaitHit(ctxT(t)))
				cancel()
				require.ErrorIs(t, got(t, done, "the call returns"), context.Canceled)
				_ = inj.Release()
				f.noneWorks()
				if before == "nothing" {
					f.NoKeys("/record/")
					require.NoError(t, begin(t, b, key("1")).Commit(ctxT(t), nil))
					return
				}
				require.Eventually(t, func() bool {
					r, _, err := b.Get(ctxT(t), b.Ref(key("1")))
					return err == nil && r.State == idempotency.Unknown && r.Attempt == 1
				}, soon, 5*time.Millisecond)
				require.Equal(t, 2, begin(t, b, key("1")).Attempt())
			})
		}
	}
}

// I40: the session is lost between the read and the claim, or between the claim and its
// answer: no attempt begins without its owner's session, and the call continues with the
// next one.
func TestSessionLostDuringAClaim(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		f := shared(t)
		a, b := f.instance(nil, nil), f.instance(nil, nil)
		strike := func() {
			if err := f.ExpireLease(ctxT(t), a.sess.Lease()); err != nil {
				t.Error(err)
			}
		}
		fault := embedtest.Fault{Method: "Txn", Match: isClaim, Before: strike}
		if answered {
			lease := a.sess.Lease()
			fault.Before, fault.After = nil, func() {
				strike()
				require.Eventually(t, func() bool { return a.sess.Lease() != lease }, soon, 5*time.Millisecond)
			}
		}
		inj := a.client.Inject(fault)
		at := begin(t, a, key("1"))
		require.Equal(t, 1, inj.Hits())
		require.NoError(t, at.Err())
		require.Equal(t, 1, at.Attempt(), "nothing was run for the lost claim")
		rejected(t, b, key("1"))
		require.NoError(t, at.Commit(ctxT(t), []byte("x")))
		require.Equal(t, "x", string(replayed(t, b, key("1")).Value))
	}
}

// I01: a zombie, whose attempt was taken over, writes nothing.
func TestZombie(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*idempotency.Attempt, context.Context) error{
		"Commit":  func(a *idempotency.Attempt, ctx context.Context) error { return a.Commit(ctx, []byte("zombie")) },
		"Fail":    func(a *idempotency.Attempt, ctx context.Context) error { return a.Fail(ctx, "zombie", nil) },
		"Release": (*idempotency.Attempt).Release,
		"Step": func(a *idempotency.Attempt, ctx context.Context) error {
			_, err := idempotency.Step(a, "x", func(context.Context) (int, error) { return 1, nil })
			return err
		},
		"Commit of much": func(a *idempotency.Attempt, ctx context.Context) error { return a.Commit(ctx, make([]byte, 3<<20)) },
	}
	for name, end := range ends {
		for _, finished := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				a, b := f.instance(nil, nil), f.instance(nil, nil)
				at := begin(t, a, key("1"))
				require.NoError(t, f.ExpireLease(ctxT(t), a.sess.Lease()))
				next := begin(t, b, key("1"))
				if finished {
					require.NoError(t, next.Commit(ctxT(t), []byte("b")))
				}
				before := f.Values("/idempotency/")
				err := end(at, ctxT(t))
				require.Error(t, err)
				if name != "Step" {
					require.ErrorIs(t, err, idempotency.ErrFenced)
				}
				require.Equal(t, before, f.Values("/idempotency/"))
				if !finished {
					require.NoError(t, next.Err())
					require.NoError(t, next.Commit(ctxT(t), []byte("b")))
				}
				// Not with Wait(0): until a has heard that its lease is gone, its own attempt counts
				// as in progress there. A call that waits gets the outcome.
				again, rec, err := a.Begin(ctxT(t), key("1"), "payload")
				require.NoError(t, err)
				require.Nil(t, again, "a new attempt")
				require.Equal(t, "b", string(rec.Value), "not that of a's cache")
				resp, err := b.client.Txn(ctxT(t)).If(at.Guard()...).Then(clientv3.OpPut(f.Root+"effect", "")).Commit()
				require.NoError(t, err)
				require.False(t, resp.Succeeded)
			})
		}
	}
}

// A lost attempt that was not taken over can still record its outcome.
func TestLostButNotTakenOver(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	require.NoError(t, f.ExpireLease(ctxT(t), a.sess.Lease()))
	closed(t, at.Context().Done(), "the context ends")
	require.NoError(t, at.Commit(ctxT(t), []byte("a")))
	require.Equal(t, "a", string(replayed(t, b, key("1")).Value))
}

// Closing a session waits for its attempts, and refuses new ones.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	shut := make(chan error, 1)
	go func() { shut <- a.sess.Close(ctxT(t)) }()
	require.Eventually(t, func() bool {
		_, _, err := a.Begin(ctxT(t), key("2"), nil)
		return err != nil
	}, soon, 5*time.Millisecond)
	_, _, err := a.Begin(ctxT(t), key("2"), nil)
	require.ErrorIs(t, err, idempotency.ErrClosed)
	rejected(t, b, key("1"))
	require.NoError(t, at.Err())
	require.NoError(t, at.Commit(ctxT(t), []byte("x")))
	require.NoError(t, got(t, shut, "Close returns"))
	require.Equal(t, "x", string(replayed(t, b, key("1")).Value))

	c := f.instance(nil, nil)
	at = begin(t, c, key("3"))
	ended, cancel := context.WithCancel(ctxT(t))
	cancel()
	require.Error(t, c.sess.Close(ended))
	require.ErrorIs(t, at.Err(), idempotency.ErrClosed)
	require.ErrorIs(t, at.Err(), idempotency.ErrLost)
	require.Equal(t, 2, begin(t, b, key("3")).Attempt())
}

// I28: this process keeps nothing of calls that have ended.
func TestNothingIsKept(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	var n atomic.Int64
	for range 200 {
		k := key(string(rune('a' + n.Add(1)%50)))
		_, err := idempotency.Do(ctxT(t), a.Store, k, nil, func(context.Context, *idempotency.Attempt) (int, error) { return 1, nil })
		require.NoError(t, err)
	}
	at := begin(t, b, key("other"))
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, _, err := a.Begin(short, key("other"), "payload")
	require.Error(t, err)
	require.NoError(t, at.Release(ctxT(t)))
	require.Zero(t, idempotency.Flights(a.Store))
	require.Zero(t, idempotency.Flights(b.Store))
}
