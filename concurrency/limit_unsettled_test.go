package concurrency_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// S6: a change of the limit whose answer was lost, and before which another came,
// must not write that other one over when it settles itself.
func TestTrapS6SettleUndoesNothing(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, ac := f.Session(nil)
	b, _ := f.Session(nil)
	sa, sb := sem(t, a, "x", 5), sem(t, b, "x", 5)
	p := acquire(t, ctx, sb)

	// A's request to lower to 2 is lost; while A does not know, B sets 7.
	ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith})
	hold := ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
	done := make(chan error, 1)
	go func() { done <- sa.SetLimit(ctx, 2) }()
	require.NoError(t, hold.WaitHit(ctx))
	require.NoError(t, sb.SetLimit(ctx, 7))
	require.NoError(t, hold.Release())
	require.NoError(t, got(t, done, "A"))
	st, err := sb.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 7, st.Limit)
	require.NoError(t, p.Release(ctx))
}

// S6: a change that comes before the former one was settled does not forget who
// had been admitted before that. It settles what it finds; where that revision is
// compacted, it hands the doubt on.
func TestTrapS6ChangeOfAnUnsettledLimit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		next    int
		compact bool
	}{
		"paused": {0, false}, "set again": {1, false}, "raised": {7, false},
		"paused, compacted": {0, true}, "set again, compacted": {1, true}, "raised, compacted": {7, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := own(t, 1)
			ctx := ctxT(t)
			s, _ := f.Session(nil)
			admin, ac := f.Session(nil)
			sm, control := sem(t, s, "x", 2), sem(t, admin, "x", 2)
			first, second := acquire(t, ctx, sm), acquire(t, ctx, sm)
			w := ask(t, ctx, sm)
			// The limit is read, then the waiter is admitted, then the limit is
			// lowered, and the process that did so dies before it settles that.
			swap := ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest})
			ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied})
			done := make(chan error, 1)
			go func() { done <- control.SetLimit(ctx, 1) }()
			require.NoError(t, swap.WaitHit(ctx))
			require.NoError(t, first.Release(ctx))
			third := granted(t, w, "it fits the limit of 2")
			require.NoError(t, swap.Release())
			require.NoError(t, got(t, done, "lowering"))

			behind := ask(t, ctx, sm)
			if tt.compact {
				_, err := f.Compact(ctx)
				require.NoError(t, err)
			}
			require.NoError(t, sm.SetLimit(ctx, tt.next))
			require.NoError(t, sm.SetLimit(ctx, 0))
			require.NoError(t, second.Release(ctx))
			st, err := sm.Status(ctx)
			require.NoError(t, err)
			require.GreaterOrEqual(t, st.Used, 1, "limit 0, but a permit is held")
			require.Equal(t, third.Token(), st.Holders[0].Token)
			require.NoError(t, third.Err())
			if tt.next == 7 {
				require.NoError(t, granted(t, behind, "it fits the limit of 7").Release(ctx))
				return
			}
			waiting(t, behind, "it was never admitted")
			require.NoError(t, third.Release(ctx))
			st, err = sm.Status(ctx)
			require.NoError(t, err)
			if !tt.compact { // else the waiter may have held, for all that is known
				require.Zero(t, st.Used, "the barrier comes")
			}
		})
	}
}

// unsettle makes the next lowering of the limit over this client stay unsettled:
// the Txn that changes it is applied, and nothing records exactly which had been
// admitted before.
var unsettle = map[string]func(c *embedtest.Client){
	"the setter dies": func(c *embedtest.Client) {
		c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Skip: 1, Err: rpctypes.ErrGRPCPermissionDenied})
	},
	"the answer and the look back are lost": func(c *embedtest.Client) {
		c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse})
		c.Inject(embedtest.Fault{Method: "Range", Do: embedtest.FailWith, Match: looksBack, Err: rpctypes.ErrGRPCPermissionDenied})
	},
}

// notes are what a status shows of a queue: the weight that is held, and the notes
// of who holds and of who waits.
type notes struct {
	held             int
	holders, waiters []string
}

func looksBack(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.RangeRequest)
	return ok && r.Revision > 0
}

// holdsAndWaits asserts, on a settled limit, who holds and who waits: as etcd shows
// it, and as the callers of that process see it.
func (f fixture) holdsAndWaits(ctx context.Context, sm *concurrency.Semaphore, want notes) {
	f.T.Helper()
	read := func(rs []concurrency.Request) (out []string) {
		for _, r := range rs {
			out = append(out, r.Note)
		}
		return out
	}
	st, err := sm.Status(ctx)
	require.NoError(f.T, err)
	require.Equal(f.T, want, notes{st.Used, read(st.Holders), read(st.Waiters)}, "%+v", st)
	st = f.sees(ctx, sm)
	require.Equal(f.T, want, notes{st.Used, read(st.Holders), read(st.Waiters)}, "%+v", st)
}

// S6: who may have held while a lowered limit was not settled is not taken for
// which requests were admitted: the next change of the limit admits none beyond it. It looks
// back to settle what the other setter has left; where history is compacted it hands
// the doubt on, and Status continues to show all that may hold as holders.
func TestTrapS6MayHaveHeldAdmitsNoWaiter(t *testing.T) {
	t.Parallel()
	for name, strike := range unsettle {
		for _, tt := range []struct {
			what                      string
			weight, limit, first, end int
			compacted                 bool
		}{
			{"the same limit again", 1, 2, 1, 1, false},
			{"the same limit again, compacted", 1, 2, 1, 1, true},
			{"then a pause", 1, 2, 1, 0, false},
			{"then a pause, compacted", 1, 2, 1, 0, true},
			{"raised, but not enough", 5, 10, 5, 7, false},
			{"raised, but not enough, compacted", 5, 10, 5, 7, true},
		} {
			t.Run(name+", "+tt.what, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				if tt.compacted {
					f = own(t, 1)
				}
				ctx := ctxT(t)
				s, _ := f.Session(nil)
				admin, ac := f.Session(nil)
				sm, control := sem(t, s, "x", tt.limit), sem(t, admin, "x", tt.limit)
				w := concurrency.Weight(tt.weight)
				a := acquire(t, ctx, sm, w, concurrency.Note("a"))
				b := acquire(t, ctx, sm, w, concurrency.Note("b"))
				next := ask(t, ctx, sm, w)
				f.sees(ctx, sm)
				strike(ac)
				require.NoError(t, control.SetLimit(ctx, tt.first))
				require.NoError(t, a.Release(ctx))
				st, err := control.Status(ctx)
				require.NoError(t, err)
				require.Len(t, st.Holders, 2, "it is not settled: the waiter may have held since before the change")
				if tt.compacted {
					_, err := f.Compact(ctx)
					require.NoError(t, err)
				}

				require.NoError(t, control.SetLimit(ctx, tt.end))
				for _, look := range []func() (concurrency.Status, error){
					func() (concurrency.Status, error) { return f.sees(ctx, sm), nil },
					func() (concurrency.Status, error) { return control.Status(ctx) },
				} {
					st, err := look()
					require.NoError(t, err)
					require.Equal(t, tt.end, st.Limit)
					require.Equal(t, b.Token(), st.Holders[0].Token)
					if tt.compacted {
						require.Len(t, st.Holders, 2, "in doubt")
					} else {
						require.Len(t, st.Holders, 1)
					}
				}
				waiting(t, next, "the other holds")
				require.NoError(t, b.Err())
				require.NoError(t, b.Release(ctx))
				require.NoError(t, control.SetLimit(ctx, tt.limit))
				require.NoError(t, granted(t, next, "it fits").Release(ctx))
			})
		}
	}
}

// S6: of two setters at once, the one that comes between the change and the
// settling of the other takes no guess for a fact either, and is not undone.
func TestTrapS6TwoSetters(t *testing.T) {
	t.Parallel()
	for _, compacted := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted=%v", compacted), func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			if compacted {
				f = own(t, 1)
			}
			ctx := ctxT(t)
			s, _ := f.Session(nil)
			one, oc := f.Session(nil)
			two, _ := f.Session(nil)
			sm, first, second := sem(t, s, "x", 3), sem(t, one, "x", 3), sem(t, two, "x", 3)
			a := acquire(t, ctx, sm, concurrency.Note("a"))
			b := acquire(t, ctx, sm, concurrency.Note("b"), concurrency.Weight(2))
			next := ask2(ctx, sm, concurrency.Note("c"))
			require.Eventually(t, func() bool { return len(f.Keys("queue/")) == 3 }, soon, tick)
			f.sees(ctx, sm)
			between := oc.Inject(embedtest.Fault{Method: "Txn", Skip: 1, Do: embedtest.Pass, Before: func() {
				assertNoError(t, a.Release(ctx))
				if compacted { // the revision cannot be read any more
					_, err := f.Compact(ctx)
					assertNoError(t, err)
				}
				assertNoError(t, second.SetLimit(ctx, 2))
			}})
			require.NoError(t, first.SetLimit(ctx, 1))
			require.Equal(t, 1, between.Hits(), "the settling")
			if compacted {
				st := f.sees(ctx, sm)
				require.Equal(t, []int{2, 2}, []int{st.Limit, len(st.Holders)}, "in doubt")
			} else {
				f.holdsAndWaits(ctx, sm, notes{2, []string{"b"}, []string{"c"}})
			}
			waiting(t, next, "b holds two of two permits")
			require.NoError(t, b.Release(ctx))
			require.NoError(t, granted(t, next, "it fits").Release(ctx))
		})
	}
}

// S6: a change whose answer was lost is settled like any other, so "SetLimit(0),
// then no permit was held" does come.
func TestTrapS6LostAnswerIsSettled(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	admin, ac := f.Session(nil)
	sm, control := sem(t, s, "x", 1), sem(t, admin, "x", 1)
	a := acquire(t, ctx, sm, concurrency.Note("a"))
	next := ask2(ctx, sm, concurrency.Note("b"))
	require.Eventually(t, func() bool { return len(f.Keys("queue/")) == 2 }, soon, tick)
	lost := ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse})
	require.NoError(t, control.SetLimit(ctx, 0))
	require.Equal(t, 1, lost.Hits())
	f.holdsAndWaits(ctx, sm, notes{1, []string{"a"}, []string{"b"}})
	require.NoError(t, a.Release(ctx))
	f.holdsAndWaits(ctx, sm, notes{0, nil, []string{"b"}})
	waiting(t, next, "paused")
	require.NoError(t, control.SetLimit(ctx, 1))
	require.NoError(t, granted(t, next, "the pause is over").Release(ctx))
}

// S6: the setter has read the queue, then a waiter is admitted, then the limit is
// changed. The Txn that changes it sees that, so who was admitted last before the
// change holds, whether the answer came or was lost.
func TestTrapS6AdmittedBeforeTheChange(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("answer lost=%v", lost), func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, _ := f.Session(nil)
			admin, ac := f.Session(nil)
			sm, control := sem(t, s, "x", 1), sem(t, admin, "x", 1)
			a := acquire(t, ctx, sm, concurrency.Note("a"))
			next := ask2(ctx, sm, concurrency.Note("b"))
			require.Eventually(t, func() bool { return len(f.Keys("queue/")) == 2 }, soon, tick)
			f.sees(ctx, sm)
			change := embedtest.Fault{Method: "Txn", Before: func() { assertNoError(t, a.Release(ctx)) }}
			if lost {
				change.Do = embedtest.DropResponse
			}
			between := ac.Inject(change)
			require.NoError(t, control.SetLimit(ctx, 0))
			require.Equal(t, 1, between.Hits())
			b := granted(t, next, "it was admitted before the pause")
			f.holdsAndWaits(ctx, sm, notes{1, []string{"b"}, nil})
			require.NoError(t, b.Release(ctx))
			f.holdsAndWaits(ctx, sm, notes{0, nil, nil})
		})
	}
}
