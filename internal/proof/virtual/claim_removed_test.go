package virtual

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// claimsTick reports whether a message is the Txn of a claim, and takesBack whether it is one that changes the record of a run
// otherwise.
func claimsTick(m etcdfake.Message) bool {
	txn, ok := m.Body.(*pb.TxnRequest)
	return ok && len(txn.Success) > 0 && strings.HasSuffix(string(txn.Success[0].GetRequestPut().GetKey()), "/lock")
}

func takesBack(m etcdfake.Message) bool {
	txn, ok := m.Body.(*pb.TxnRequest)
	if !ok || claimsTick(m) {
		return false
	}
	for _, op := range txn.Success {
		if strings.Contains(string(op.GetRequestDeleteRange().GetKey())+string(op.GetRequestPut().GetKey()), "/run/") {
			return true
		}
	}
	return false
}

// A510: a claim is applied, and its function is not called. Close waits until the claim is removed, as long as its ctx lasts: its
// record has no lease, so the tick stayed claimed by a process that never ran it, such as `etcdkit jobs run`, which closes at once.
func TestCloseWaitsForTheRemovalOfAClaim(t *testing.T) {
	t.Parallel()
	const slow = 2500 * time.Millisecond // longer than what is left to a session after its end
	for name, c := range map[string]struct {
		claim etcdfake.Fault
		late  bool // the answer
		err   error
	}{
		"refused for space, and applied": {claim: etcdfake.Fault{Err: rpctypes.ErrGRPCNoSpace}, err: rpctypes.ErrNoSpace},
		"its caller has gone":            {claim: etcdfake.Fault{ResponseDelay: 20 * time.Second}, err: context.DeadlineExceeded},
		"too late, and not withdrawn":    {late: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				var ahead atomic.Int64
				a, err := schedlock.New(on[0].session, &schedlock.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
				require.NoError(t, err)
				b := on[1].locker()
				_, err = a.Do(t.Context(), "job", noWork, fireTime(0))
				require.NoError(t, err)
				var sent, refused atomic.Bool
				on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					switch unary := m.Method == "Txn" || m.Method == "Range"; {
					case claimsTick(m) && !sent.Swap(true):
						if c.late {
							ahead.Store(int64(time.Minute))
						}
						return c.claim
					case c.late && takesBack(m) && !refused.Swap(true):
						return etcdfake.Fault{Err: rpctypes.ErrGRPCPermissionDenied, DropRequest: true}
					case unary && sent.Load():
						return etcdfake.Fault{RequestDelay: slow}
					}
					return etcdfake.Fault{}
				})
				tick := schedlock.Tick(time.Now())
				res, err := a.Do(within(t, 5*time.Second), "job", noWork, tick, schedlock.LateBy(30*time.Second))
				require.ErrorIs(t, err, c.err)
				require.False(t, res.Outcome.Started())
				require.Len(t, on[1].jobKeys("/run/"), 2, "it is applied")
				require.GreaterOrEqual(t, on[0].close(time.Minute), slow)
				require.Len(t, on[1].jobKeys("/run/"), 1)
				require.Empty(t, on[1].jobKeys("/lock"))
				res, err = b.Do(t.Context(), "job", noWork, tick)
				require.NoError(t, err)
				require.Equal(t, schedlock.Ran, res.Outcome)
			})
		})
	}
}

// A510: the lease of the claim has ended when the session is closed, which waits for nothing then. The removal that is under way
// ends all the same.
func TestRemovalOfAClaimOutlastsTheSession(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		a := on[0].locker()
		_, err := a.Do(t.Context(), "job", noWork, fireTime(0))
		require.NoError(t, err)
		var away atomic.Bool
		removes := make(chan struct{})
		removing := sync.OnceFunc(func() { close(removes) })
		on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			switch {
			case claimsTick(m) && !away.Swap(true):
				return etcdfake.Fault{Err: etcdfake.ErrUnavailable}
			case away.Load() && !m.Response:
				return etcdfake.Fault{Err: etcdfake.ErrUnavailable, DropRequest: true}
			}
			return etcdfake.Fault{}
		})
		_, err = a.Do(within(t, time.Second), "job", noWork, fireTime(1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * ttl)
		require.Len(t, on[1].jobKeys("/run/"), 2, "it was applied")
		require.Empty(t, on[1].jobKeys("/lock"), "its lease has ended")
		on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if takesBack(m) {
				removing()
				return etcdfake.Fault{RequestDelay: time.Second}
			}
			return etcdfake.Fault{}
		})
		came(t, removes, "the removal")
		on[0].close(0)
		require.Len(t, on[1].jobKeys("/run/"), 1)
	})
}

// A512: a further attempt has become too late when its claim is answered, and etcd is out of space, so that the record of the
// attempt before cannot be put back. That is repeated: the job stayed locked for as long as the session lived.
func TestWithdrawalIsRepeated(t *testing.T) {
	t.Parallel()
	bubble(t, 3, func(t *testing.T, on []*desk) {
		var ahead atomic.Int64
		a, err := schedlock.New(on[0].session, &schedlock.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		require.NoError(t, err)
		end := make(chan struct{})
		tick := schedlock.Tick(time.Now())
		begun, done := doing(t.Context(), on[1].locker(), false, end, tick, schedlock.Retries(1))
		came(t, begun, "the first attempt")
		on[1].client.Stall()
		time.Sleep(2 * ttl)
		full := time.Now().Add(10 * time.Second)
		var sent atomic.Bool
		on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			switch {
			case claimsTick(m) && strings.Contains(fmt.Sprint(m.Body), `attempt\":2`) && !sent.Swap(true):
				ahead.Store(int64(time.Hour))
			case takesBack(m) && time.Now().Before(full):
				return etcdfake.Fault{Err: rpctypes.ErrGRPCNoSpace, DropRequest: true}
			}
			return etcdfake.Fault{}
		})
		res, err := a.Do(t.Context(), "job", noWork, tick, schedlock.Retries(1), schedlock.LateBy(10*time.Minute))
		require.False(t, res.Outcome.Started(), "%v %v", res, err)
		require.True(t, sent.Load())
		require.Len(t, on[2].jobKeys("/lock"), 1)
		time.Sleep(20 * time.Second)
		require.Empty(t, on[2].jobKeys("/lock"))
		res, err = on[2].locker().Do(t.Context(), "job", noWork, tick, schedlock.Retries(1))
		require.NoError(t, err)
		require.Equal(t, []any{schedlock.Ran, 2}, []any{res.Outcome, res.Attempt})
		on[1].client.Heal()
		close(end)
		came(t, done, "the end of the lost run")
	})
}

// changesRecord reports whether a message is a Txn that writes the record of a request, or deletes it.
func changesRecord(m etcdfake.Message) (puts, deletes bool) {
	txn, ok := m.Body.(*pb.TxnRequest)
	if !ok {
		return false, false
	}
	for _, op := range txn.Success {
		puts = puts || strings.Contains(string(op.GetRequestPut().GetKey()), "/record/")
		deletes = deletes || strings.Contains(string(op.GetRequestDeleteRange().GetKey()), "/record/")
	}
	return puts, deletes
}

// A518: the same of a request of idempotency. Its record would read as a lost attempt, which Refuse never executes again.
func TestRemovalOfARequestOutlastsTheSession(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		s := on[0].storeOf(idempotency.Options{})
		require.NoError(t, started(t, s, order("1")).Commit(t.Context(), nil))
		var away atomic.Bool
		removes := make(chan struct{})
		removing := sync.OnceFunc(func() { close(removes) })
		on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			switch puts, _ := changesRecord(m); {
			case puts && !away.Swap(true):
				return etcdfake.Fault{Err: etcdfake.ErrUnavailable}
			case away.Load() && !m.Response:
				return etcdfake.Fault{Err: etcdfake.ErrUnavailable, DropRequest: true}
			}
			return etcdfake.Fault{}
		})
		_, _, err := s.Begin(within(t, time.Second), order("2"), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * ttl)
		require.Len(t, on[1].records(), 2, "it was applied")
		on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if _, deletes := changesRecord(m); deletes {
				removing()
				return etcdfake.Fault{RequestDelay: time.Second}
			}
			return etcdfake.Fault{}
		})
		came(t, removes, "the removal")
		on[0].close(0)
		require.Len(t, on[1].records(), 1)
	})
}
