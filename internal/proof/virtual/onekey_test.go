package virtual

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
)

// returned is what a call of Begin has returned, and when.
type returned struct {
	at  *idempotency.Attempt
	out *idempotency.Outcome
	err error
	end time.Time
}

// waiting has an attempt of the first process, for which a call of the second one waits. It returns the Stores of the second
// and of the third process, the attempt, and what the call returns.
func waiting(t *testing.T, ctx context.Context, on []*desk, opts ...idempotency.Option) (b, c *idempotency.Store, first *idempotency.Attempt, call <-chan returned) {
	t.Helper()
	a, b, c := on[0].storeOf(idempotency.Options{}), on[1].storeOf(idempotency.Options{}), on[2].storeOf(idempotency.Options{})
	first = started(t, a, order("1"))
	done := make(chan returned, 1)
	go func() {
		at, out, err := b.Begin(ctx, order("1"), "payload", opts...)
		done <- returned{at, out, err, time.Now()}
	}()
	synctest.Wait()
	return b, c, first, done
}

// replaced has an attempt release its key, and begins one with another payload.
func replaced(t *testing.T, first *idempotency.Attempt, c *idempotency.Store) *idempotency.Attempt {
	t.Helper()
	require.NoError(t, first.Release(t.Context()))
	other, _, err := c.Begin(t.Context(), order("1"), "another payload")
	require.NoError(t, err)
	return other
}

// events has a fault for all events that the process would hear, and counts them.
func (d *desk) events(of etcdfake.Fault) *atomic.Int64 {
	var heard atomic.Int64
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if r, ok := m.Body.(*pb.WatchResponse); !ok || len(r.Events) == 0 {
			return etcdfake.Fault{}
		}
		heard.Add(1)
		return of
	})
	return &heard
}

// later delays what the process asks etcd for, so that another one comes first.
func (d *desk) later() {
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if m.Method == "Txn" || m.Method == "Range" {
			return etcdfake.Fault{RequestDelay: time.Second}
		}
		return etcdfake.Fault{}
	})
}

// K5: a claim is not answered in time, and is sent again. The attempt releases its key, so there is no record, and the
// first copy arrives then: its condition holds again. It is void, since the session's presence key was put again before.
func TestTrapK5GhostOfAClaim(t *testing.T) {
	const late = time.Minute
	bubble(t, 2, func(t *testing.T, on []*desk) {
		a, b := on[0].storeOf(idempotency.Options{}), on[1].storeOf(idempotency.Options{})
		on[0].slow("Txn", 1, etcdfake.Fault{RequestDelay: late})
		at := started(t, a, order("1"))
		require.NoError(t, at.Release(t.Context()))
		require.Empty(t, on[0].records())
		time.Sleep(2 * late)
		require.Empty(t, on[0].records(), "the copy has arrived")
		require.NoError(t, started(t, b, order("1"), idempotency.Wait(0)).Release(t.Context()))
	})
}

// K4, A180: renewals of the record's lease are not answered, while those of the session's are: the attempt's context ends
// before the lease can expire, by as much of it as the session's margin is of its TTL. When two thirds of the lease have
// passed, the record of another attempt is put on another one.
func TestTrapK4RecordIsNotRenewed(t *testing.T) {
	for _, unknown := range []time.Duration{time.Second, 2 * time.Hour} {
		t.Run(unknown.String(), func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d, opts := on[0], idempotency.Options{Retain: time.Second, RetainUnknown: unknown, MaxExecution: 24 * time.Hour}
				a := d.storeOf(opts)
				at := started(t, a, order("1"))
				lease := func(ref idempotency.Ref) int64 {
					for _, key := range d.records() {
						if strings.HasSuffix(key, string(ref)) {
							resp, err := d.client.Get(t.Context(), key)
							require.NoError(t, err)
							return resp.Kvs[0].Lease
						}
					}
					return 0
				}
				first := lease(at.Ref())
				require.NotZero(t, first)
				var unanswered atomic.Int64
				d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					if r, ok := m.Body.(*pb.LeaseKeepAliveRequest); ok && r.ID == first {
						unanswered.Add(1)
						return etcdfake.Fault{DropRequest: true, DropResponse: true}
					}
					return etcdfake.Fault{}
				})
				begun, granted := time.Now(), max(unknown*3/2, 2*ttl)+time.Second // of the record's lease
				time.Sleep(granted/3*2 - time.Second)
				require.Equal(t, first, lease(started(t, a, order("2")).Ref()))
				time.Sleep(2 * time.Second)
				require.NotEqual(t, first, lease(started(t, a, order("3")).Ref()))
				<-at.Context().Done()
				require.WithinDuration(t, begun.Add(granted-time.Duration(float64(granted)*margin.Seconds()/ttl.Seconds())), time.Now(), time.Second)
				synctest.Wait()
				require.ErrorIs(t, at.Err(), idempotency.ErrLost)
				require.ErrorContains(t, at.Err(), "was not renewed in time")
				require.NotZero(t, unanswered.Load())
				require.NotZero(t, d.session.Lease(), "the session lives")
			})
		})
	}
}

// K10, A177: what a waiting call hears of the record is late: an outcome that was deleted since, after which another attempt has
// begun. The call has read that attempt meanwhile, so it waits for it.
func TestTrapK10LateOutcome(t *testing.T) {
	const late = ttl + renews
	bubble(t, 3, func(t *testing.T, on []*desk) {
		_, c, first, call := waiting(t, within(t, time.Hour), on)
		heard := on[1].events(etcdfake.Fault{ResponseDelay: late})
		require.NoError(t, first.Commit(t.Context(), []byte("first")))
		require.NoError(t, c.Delete(t.Context(), c.Ref(order("1"))))
		second := started(t, c, order("1"))
		time.Sleep(2 * late) // it reads once per TTL, whatever it hears
		synctest.Wait()
		require.NotZero(t, heard.Load())
		require.Empty(t, call)
		require.NoError(t, second.Commit(t.Context(), []byte("second")))
		end := <-call
		require.NoError(t, end.err)
		require.Nil(t, end.at)
		require.Equal(t, "second", string(end.out.Value))
	})
}

// A177: an outcome that a late event has brought is cached from the call's last read on, and not from the event on: it may
// have been deleted since.
func TestLateOutcomeIsNotCached(t *testing.T) {
	const late = 12 * time.Second // less than the TTL, and more than CacheFor
	bubble(t, 3, func(t *testing.T, on []*desk) {
		b, c, at, call := waiting(t, within(t, time.Hour), on)
		on[1].events(etcdfake.Fault{ResponseDelay: late})
		begun := time.Now()
		require.NoError(t, at.Commit(t.Context(), []byte("x")))
		require.NoError(t, c.Delete(t.Context(), c.Ref(order("1"))))
		end := <-call
		require.NoError(t, end.err)
		require.NotNil(t, end.out)
		require.Equal(t, late, end.end.Sub(begun))
		require.NoError(t, started(t, b, order("1")).Release(t.Context()))
	})
}

// The Wait of a call ends while another attempt is in progress than when it began to wait: the error names that one.
func TestWaitEndsBesideAnotherAttempt(t *testing.T) {
	bubble(t, 3, func(t *testing.T, on []*desk) {
		_, c, first, call := waiting(t, within(t, time.Hour), on, idempotency.Wait(time.Minute))
		on[1].later()
		require.NoError(t, first.Abandon(t.Context()))
		second := started(t, c, order("1"))
		var in *idempotency.InProgressError
		require.ErrorAs(t, (<-call).err, &in)
		require.Equal(t, 2, in.Attempt)
		require.NoError(t, second.Commit(t.Context(), nil))
	})
}

// The attempt that a call waits for releases its key, and one with another payload begins: the call does not wait for that.
func TestOtherPayloadWhileWaiting(t *testing.T) {
	bubble(t, 3, func(t *testing.T, on []*desk) {
		_, c, first, call := waiting(t, within(t, time.Hour), on)
		on[1].later()
		other := replaced(t, first, c)
		time.Sleep(10 * time.Second)
		require.Len(t, call, 1, "it waits for another request")
		require.ErrorIs(t, (<-call).err, idempotency.ErrMismatch)
		require.NoError(t, other.Commit(t.Context(), nil))
	})
}

// The same, and the call hears nothing of it. A second call of its process, which does not wait, reads what there is now.
func TestOtherPayloadBehindAWaitingCall(t *testing.T) {
	bubble(t, 3, func(t *testing.T, on []*desk) {
		b, c, first, call := waiting(t, within(t, time.Hour), on)
		on[1].events(etcdfake.Fault{DropResponse: true})
		other := replaced(t, first, c)
		_, _, err := b.Begin(t.Context(), order("1"), "payload", idempotency.Wait(0))
		require.ErrorIs(t, err, idempotency.ErrMismatch)
		require.ErrorIs(t, (<-call).err, idempotency.ErrMismatch)
		require.NoError(t, other.Commit(t.Context(), nil))
	})
}

// The same, and the second call has the payload of the attempt that is in progress now: it is not judged by that of the
// call before it, which waits for an attempt that has ended. Nor is it once that attempt has recorded its outcome.
func TestPayloadOfTheAttemptAndNotOfAWaitingCall(t *testing.T) {
	for _, then := range []bool{true, false} {
		bubble(t, 3, func(t *testing.T, on []*desk) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b, c, first, call := waiting(t, ctx, on)
			on[1].events(etcdfake.Fault{DropResponse: true})
			other := replaced(t, first, c)
			if then {
				_, _, err := b.Begin(t.Context(), order("1"), "another payload", idempotency.Wait(0))
				require.ErrorIs(t, err, idempotency.ErrInProgress)
				require.ErrorIs(t, (<-call).err, idempotency.ErrMismatch)
				require.NoError(t, other.Commit(t.Context(), nil))
				return
			}
			require.NoError(t, other.Commit(t.Context(), []byte("x")))
			_, out, err := b.Begin(t.Context(), order("1"), "another payload", idempotency.Wait(time.Minute))
			require.NoError(t, err)
			require.Equal(t, "x", string(out.Value))
			require.ErrorIs(t, (<-call).err, idempotency.ErrMismatch)
		})
	}
}

// K10: a waiting call listens to the end of the session of the attempt, by one watch for all calls that wait for attempts of
// that session. It hears no put of the presence key, and what it hears decides nothing: the outcome and the end of the
// session come in any order.
func TestTrapK10TwoKeys(t *testing.T) {
	const calls = 5
	bubble(t, 2, func(t *testing.T, on []*desk) {
		a, b := on[0].storeOf(idempotency.Options{}), on[1].storeOf(idempotency.Options{})
		var watches, events, reads atomic.Int64
		lease := on[0].session.Lease() // that of the attempts: the session has a new one soon after its end
		on[1].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			alive := func(key []byte) bool {
				return strings.HasSuffix(string(key), fmt.Sprintf("%016x/alive", lease))
			}
			switch r := m.Body.(type) {
			case *pb.WatchRequest:
				if alive(r.GetCreateRequest().GetKey()) {
					watches.Add(1)
				}
			case *pb.WatchResponse:
				for _, ev := range r.Events {
					if alive(ev.Kv.Key) {
						events.Add(1)
					}
				}
			case *pb.TxnRequest, *pb.RangeRequest:
				reads.Add(1)
			}
			return etcdfake.Fault{}
		})
		type answer struct {
			at  *idempotency.Attempt
			rec *idempotency.Outcome
		}
		var attempts [calls]*idempotency.Attempt
		var answers [calls]chan answer
		for i := range calls {
			k := order(fmt.Sprint(i))
			attempts[i], answers[i] = started(t, a, k), make(chan answer, 1)
			go func() {
				at, rec, err := b.Begin(within(t, time.Hour), k, "payload")
				if err != nil {
					t.Error(err)
				}
				answers[i] <- answer{at, rec}
			}()
		}
		synctest.Wait()
		require.EqualValues(t, 1, watches.Load())

		// The presence key is put again, as after the lost answer of a claim.
		before := reads.Load()
		on[0].slow("Txn", 1, etcdfake.Fault{Err: etcdfake.ErrUnavailable})
		require.NoError(t, started(t, a, order("other")).Release(t.Context()))
		synctest.Wait()
		require.Zero(t, events.Load())
		require.Equal(t, before, reads.Load(), "no call reads for that")

		// An outcome, and then the end of the session; and an outcome after that, for which its call does not wait.
		require.NoError(t, attempts[0].Commit(t.Context(), []byte("before")))
		require.True(t, on[0].server.Expire(lease))
		require.Equal(t, "before", string((<-answers[0]).rec.Value))
		for i := 1; i < calls; i++ {
			next := <-answers[i]
			require.Equal(t, 2, next.at.Attempt())
			require.ErrorIs(t, attempts[i].Commit(t.Context(), nil), idempotency.ErrFenced)
			require.NoError(t, next.at.Commit(t.Context(), nil))
		}
		require.EqualValues(t, 1, events.Load())
	})
}

// The record of a lost attempt is kept for RetainUnknown after the end of its process, at whatever moment that ends
// between two renewals of the record's lease.
func TestLostRecordIsKept(t *testing.T) {
	for after := 25 * time.Second; after < time.Minute; after += 2500 * time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				a := on[0].storeOf(idempotency.Options{Retain: time.Second, RetainUnknown: time.Minute})
				started(t, a, order("1"), idempotency.OnLost(idempotency.Refuse))
				time.Sleep(after - time.Millisecond)
				on[0].client.Stall() // as of a process that was killed
				time.Sleep(time.Minute)
				require.NotEmpty(t, on[0].records())
			})
		})
	}
}
