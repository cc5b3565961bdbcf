package concurrency_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// T10, F23: a request whose answer was lost is found and used, not made twice, and
// a session continues as if nothing had happened.
func TestAcquireFindsItsLostRequest(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx)) // the limit is stored
	lost := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse})
	p := acquire(t, ctx, sm)
	require.Equal(t, 1, lost.Hits())
	require.Len(t, f.Keys("queue/"), 1)
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctx))

	// The same for one that then has to wait.
	p = acquire(t, ctx, sm)
	lost = c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse})
	w := ask(t, ctx, sm)
	require.NoError(t, lost.WaitHit(ctx))
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "the waiter").Release(ctx))
	f.NoKeys("queue/")
}

// F46: a Txn is not repeated blindly: with each of its answers lost, a request is
// still made once, at its key and in a total, and the session loses nothing that it has.
func TestRequestsAreNotRepeatedBlindly(t *testing.T) {
	t.Parallel()
	type call func(context.Context, *concurrency.Semaphore) (*concurrency.Permit, error)
	with := func(opts ...concurrency.AcquireOption) call {
		return func(ctx context.Context, sm *concurrency.Semaphore) (*concurrency.Permit, error) {
			return sm.Acquire(ctx, opts...)
		}
	}
	calls := map[string]call{
		"Acquire": with(), "MaxWaiters": with(concurrency.MaxWaiters(1)), "ID": with(concurrency.ID("i")),
		"TryAcquire": func(ctx context.Context, sm *concurrency.Semaphore) (*concurrency.Permit, error) {
			return sm.TryAcquire(ctx)
		},
	}
	alone := func(t *testing.T, s *concurrency.Session, name string) *concurrency.Semaphore {
		return sem(t, s, name, 10)
	}
	for name, c := range map[string]struct {
		of    func(*testing.T, *concurrency.Session, string) *concurrency.Semaphore
		keys  int  // of one request
		waits bool // others hold all permits when it comes
	}{
		"semaphore": {alone, 1, false}, "total": {keyOfTotal, 2, false}, "full total": {keyOfTotal, 2, true},
	} {
		for how, call := range calls {
			if c.waits && how == "TryAcquire" {
				continue
			}
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				ctx := ctxT(t)
				s, client := f.Session(idle())
				o, _ := f.Session(idle())
				held, sm := acquire(t, ctx, c.of(t, s, "held")), c.of(t, s, "x")
				require.NoError(t, acquire(t, ctx, sm).Release(ctx))
				lease := s.Lease()
				for skip := 0; ; skip++ {
					var full []*concurrency.Permit
					if c.waits {
						full = append(full, acquire(t, ctx, c.of(t, o, "held")), acquire(t, ctx, c.of(t, o, "y")))
					}
					lost := client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Skip: skip})
					answers := make(chan answer, 1)
					go func() {
						p, err := call(ctx, sm)
						answers <- answer{p, err}
					}()
					if c.waits {
						require.Eventually(t, func() bool { return len(f.Keys("queue/")) == c.keys*4 }, soon, tick)
					}
					for _, p := range full {
						require.NoError(t, p.Release(ctx))
					}
					p := granted(t, answers, "its request is made")
					lost.Remove()
					require.Equal(t, lease, s.Lease(), "no fault has ended the lease")
					require.NoError(t, held.Err())
					require.NoError(t, p.Err())
					require.Len(t, f.Keys("queue/"), c.keys*2, "it is made once")
					require.NoError(t, p.Release(ctx))
					if lost.Hits() == 0 {
						require.Positive(t, skip)
						break
					}
				}
				require.NoError(t, held.Release(ctx))
				f.NoKeys("queue/")
			})
		}
	}
}

// keyOfTotal is a key with a limit of 2, in a total of 3.
func keyOfTotal(t *testing.T, s *concurrency.Session, key string) *concurrency.Semaphore {
	return totaled(t, s, "llm", 2, 3).Key(key)
}

// T9, T27, F23: an acquire that was given up while its request was under way
// leaves nothing, even if the request arrives after all, and whether or not its
// name was used anew meanwhile: by one who holds, or by one who has gone again.
func TestTrapL1LateAcquireLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, reused := range []bool{false, true} {
		t.Run(fmt.Sprintf("reused=%v", reused), func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle())
			sm := sem(t, s, "x", 2)
			p := acquire(t, ctx, sm)
			name := f.Keys("queue/")[0]
			require.NoError(t, p.Release(ctx))

			held := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.HoldRequest})
			given, cancel := context.WithCancel(ctx)
			ch := ask2(given, sm)
			require.NoError(t, held.WaitHit(ctx))
			cancel()
			require.ErrorIs(t, got(t, ch, "giving up").err, context.Canceled)

			// The name is used anew as soon as it is certain what became of it.
			for p = acquire(t, ctx, sm); f.Keys("queue/")[0] != name; p = acquire(t, ctx, sm) {
				require.NoError(t, p.Release(ctx))
			}
			if !reused {
				require.NoError(t, p.Release(ctx))
			}
			before := f.Keys("queue/")
			require.NoError(t, held.Release())
			require.False(t, held.LateResponses()[0].Response.(*etcdserverpb.TxnResponse).Succeeded, "the late copy is void")
			require.Equal(t, before, f.Keys("queue/"))
			if reused {
				require.NoError(t, p.Err())
				require.NoError(t, p.Release(ctx))
			}
			f.NoKeys("queue/")
			p, err := sm.TryAcquire(ctx, concurrency.Weight(2))
			require.NoError(t, err, "nothing is held")
			require.NoError(t, p.Release(ctx))
		})
	}
}

// A second copy of a request that arrives when its permit was released leaves
// nothing.
func TestTrapL1DoubledAcquire(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	double := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Duplicate})
	p := acquire(t, ctx, sm)
	require.Equal(t, 1, double.Hits())
	require.NoError(t, p.Release(ctx))
	require.NoError(t, double.Release())
	require.Empty(t, f.Keys("queue/"))
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
}

// F23: the request was applied, and its caller had given up before the answer
// came.
func TestGivenUpAcquireIsRemoved(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	require.NoError(t, acquire(t, ctx, sm).Release(ctx))
	held := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldResponse})
	given, cancel := context.WithCancel(ctx)
	ch := ask2(given, sm, concurrency.ID("i"))
	require.NoError(t, held.WaitHit(ctx))
	require.Len(t, f.Keys("queue/"), 1)
	cancel()
	require.ErrorIs(t, got(t, ch, "giving up").err, context.Canceled)
	f.NoKeys("queue/")
	f.NoKeys("/request-id/")
	p, err := sm.TryAcquire(ctx, concurrency.ID("i"))
	require.NoError(t, err)
	require.NoError(t, p.Release(ctx))
}

// F24: the clean-up of a given-up request does not depend on the ctx that ended.
func TestCleanUpOutlivesCtx(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	given, cancel := context.WithCancel(ctx)
	w := ask(t, given, sm)
	// The first tries to remove it fail.
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: 3})
	cancel()
	require.ErrorIs(t, got(t, w, "giving up").err, context.Canceled)
	require.Eventually(t, func() bool { return len(f.Keys("queue/")) == 1 }, soon, 5*time.Millisecond)
	require.NoError(t, p.Release(ctx))
}

// T11, T23: a release whose answer is lost succeeds.
func TestReleaseWithLostAnswer(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Times: 2})
	require.NoError(t, p.Release(ctx))
	f.NoKeys("queue/")
}

// T20, F26: a copy of a release that arrives late does not remove the next request
// in the same slot.
func TestLateReleaseSparesTheSuccessor(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(nil)
	sm := sem(t, s, "x", 1)
	p := acquire(t, ctx, sm)
	late := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.Duplicate})
	require.NoError(t, p.Release(ctx))
	keys := func() []string { return f.Keys("queue/") }
	require.Empty(t, keys())
	next := acquire(t, ctx, sm)
	slot := keys()
	require.NoError(t, late.Release())
	require.Equal(t, slot, keys(), "the successor has it")
	require.NoError(t, next.Release(ctx))
}

// F25, T32: while etcd cannot be reached, Acquire and Release return when their
// ctx ends, and what they left is cleaned up when etcd is back.
func TestCallsHonourCtxWhenEtcdIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*embedtest.Client){
		"cut": (*embedtest.Client).Cut, "black hole": (*embedtest.Client).BlackHole,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle()) // no loss of the lease helps
			sm := sem(t, s, "x", 3)
			p := acquire(t, ctx, sm, concurrency.Weight(2))
			given, giveUp := context.WithCancel(ctx)
			w := ask(t, given, sm, concurrency.Weight(3))
			f.sees(ctx, sm)
			away(c)
			call := func(what string, fn func(context.Context) error) {
				t.Helper()
				waits := strings.Contains(what, "Wait")
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- fn(short) }()
				err := got(t, ended, what+" returns")
				require.NotErrorIs(t, err, concurrency.ErrFull, "whether it is full is unknown")
				if !waits {
					require.ErrorIs(t, err, context.DeadlineExceeded, what)
					return
				}
				require.ErrorIs(t, err, concurrency.ErrUnavailable, what)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "ctx has not ended")
			}
			call("Acquire", func(ctx context.Context) error { _, err := sm.Acquire(ctx); return err })
			call("TryAcquire", func(ctx context.Context) error { _, err := sm.TryAcquire(ctx); return err })
			call("Acquire with Wait", func(context.Context) error {
				_, err := sm.Acquire(ctx, concurrency.Wait(50*time.Millisecond))
				return err
			})
			call("the first call of a semaphore, with Wait", func(context.Context) error {
				_, err := sem(t, s, "new", 2).Acquire(ctx, concurrency.Wait(50*time.Millisecond))
				return err
			})
			call("Release", p.Release)
			require.ErrorIs(t, p.Err(), concurrency.ErrReleased)
			giveUp()
			require.ErrorIs(t, got(t, w, "the waiter returns").err, context.Canceled)
			c.Heal()
			require.NoError(t, p.Release(ctx), "it continued in the background")
			f.NoKeys("queue/")
			require.NoError(t, acquire(t, ctx, sm).Release(ctx))
		})
	}
}
