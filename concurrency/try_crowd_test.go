package concurrency_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// A try writes its request on the condition that no request has come since it looked
// at the queue. Only when that has failed four times does it write first and look
// then; a call with MaxWaiters does so when it has failed once. These tests bring it there.

// optimism is how often a try is written on that condition.
const optimism = 4

// overtake lets a request come between look and request of the next tries over c, and
// go again, so often.
func overtake(ctx context.Context, c *embedtest.Client, there *concurrency.Semaphore, times int) *embedtest.Injection {
	var p *concurrency.Permit
	return c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Times: times, Do: embedtest.Pass,
		Before: func() { p, _ = there.Acquire(ctx) },
		After:  func() { _ = p.Release(ctx) }})
}

// L4: a try that was overtaken writes its request, marked as a try, and is refused; so
// is a caller who does not want to be behind a waiter. While the key is still
// there, no permit is held, and no request is refused for it.
func TestTrapL4LosingTryRefusesNoRequest(t *testing.T) {
	t.Parallel()
	for _, waiter := range []bool{false, true} {
		t.Run(fmt.Sprintf("MaxWaiters=%v", waiter), func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle())
			other, _ := f.Session(nil)
			third, tc := f.Session(idle())
			times := optimism
			if waiter {
				times = 1
			}
			for quick := false; !quick; { // the third caller's patience is 100 ms: a busy machine may use it up
				name := rand.Text() // a session is not optimistic for a queue where others came a moment ago
				sm, there, late := sem(t, s, name, 1), sem(t, other, name, 1), sem(t, third, name, 1)
				require.NoError(t, acquire(t, ctx, sm).Release(ctx))
				require.NoError(t, acquire(t, ctx, late).Release(ctx))
				overtaken := overtake(ctx, c, there, times)
				var holder *concurrency.Permit
				var behind <-chan answer
				writes := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.Pass, Before: func() {
					holder = acquire(t, ctx, there)
					if waiter {
						behind = ask(t, ctx, there)
					}
				}})
				removal := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Do: embedtest.HoldRequest})
				var err error
				if waiter {
					_, err = sm.Acquire(ctx, concurrency.MaxWaiters(1))
				} else {
					_, err = sm.TryAcquire(ctx)
				}
				require.ErrorIs(t, err, concurrency.ErrFull)
				require.Equal(t, []int{times, 1}, []int{overtaken.Hits(), writes.Hits()})
				require.NoError(t, removal.WaitHit(ctx))
				require.NoError(t, holder.Release(ctx))
				if waiter {
					require.NoError(t, granted(t, behind, "it waited").Release(ctx))
				}
				keys := f.Keys("queue/")
				require.Len(t, keys, 1)
				require.True(t, strings.HasSuffix(keys[0], "-try"), "%v", keys)

				// A third caller finds it, and then it goes.
				begun := time.Now()
				looks := tc.Inject(embedtest.Fault{Method: "Range", Match: lists, Do: embedtest.Pass, After: func() {
					assertNoError(t, removal.Release())
					quick = time.Since(begun) < 80*time.Millisecond
				}})
				p, err := late.TryAcquire(ctx)
				require.Equal(t, 1, looks.Hits())
				if err == nil {
					require.NoError(t, p.Release(ctx))
				} else {
					require.ErrorIs(t, err, concurrency.ErrFull)
					require.False(t, quick, "no permit was held: %v", err)
				}
				f.NoKeys("queue/")
			}
		})
	}
}

// L4: the same where the third caller was overtaken as well, so that its request
// is behind the losing one's: it gets the time that this takes.
func TestTrapL4OvertakenBehindLosingTry(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	other, _ := f.Session(nil)
	sm, there := sem(t, s, "x", 1), sem(t, other, "x", 1)
	p := acquire(t, ctx, there)
	losing := f.Keys("queue/")[0] + "-try"
	w := ask(t, ctx, sm) // its mirror runs on for a while
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "no permit is held").Release(ctx))

	for quick := false; !quick; {
		overtaken := overtake(ctx, c, there, optimism)
		plants := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.Pass,
			Before: func() {
				_, err := f.Client().Put(ctx, losing, "{}", clientv3.WithLease(other.Lease()))
				assertNoError(t, err)
			}})
		begun, both := time.Now(), 0
		// It sees the losing try before it, which goes right then.
		looks := c.Inject(embedtest.Fault{Method: "Range", Match: lists, Skip: optimism + 1, Do: embedtest.Pass, After: func() {
			both = len(f.Keys("-try"))
			begun = time.Now()
			_, err := f.Client().Delete(ctx, losing)
			assertNoError(t, err)
			quick = time.Since(begun) < 50*time.Millisecond
		}})
		p, err := sm.TryAcquire(ctx)
		quick = quick && time.Since(begun) < 80*time.Millisecond
		require.Equal(t, []int{optimism, 1, 1, 2}, []int{overtaken.Hits(), plants.Hits(), looks.Hits(), both})
		if err == nil {
			require.NoError(t, p.Release(ctx))
		} else {
			require.ErrorIs(t, err, concurrency.ErrFull)
			require.False(t, quick, "no permit was held: %v", err)
		}
		f.NoKeys("queue/")
	}
}

// T32, F25: a try that has written its request and must take it back returns when
// it knows that it is refused, or when its ctx ends, also when etcd goes away at
// that moment. What it has written goes later.
func TestRefusedTryHonoursCtx(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(c *embedtest.Client, giveUp func()) (after func(), want error){
		"etcd goes away when it has written": func(c *embedtest.Client, giveUp func()) (func(), error) {
			return func() { c.BlackHole(); giveUp() }, context.Canceled
		},
		"etcd goes away when it has looked": func(c *embedtest.Client, _ func()) (func(), error) {
			c.Inject(embedtest.Fault{Method: "Range", Match: lists, Skip: optimism + 1, Do: embedtest.Pass, After: c.BlackHole})
			return nil, concurrency.ErrFull
		},
		"its removal gets stuck": func(c *embedtest.Client, _ func()) (func(), error) {
			c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Do: embedtest.HoldRequest})
			return nil, concurrency.ErrFull
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle())
			other, _ := f.Session(nil)
			sm, there := sem(t, s, "x", 1), sem(t, other, "x", 1)
			require.NoError(t, acquire(t, ctx, sm).Release(ctx))
			overtaken := overtake(ctx, c, there, optimism)
			given, giveUp := context.WithCancel(ctx)
			defer giveUp()
			after, want := strike(c, giveUp)
			writes := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.Pass,
				Before: func() { _, _ = there.Acquire(ctx) }, After: after})
			refused := make(chan error, 1)
			go func() { _, err := sm.TryAcquire(given); refused <- err }()
			require.ErrorIs(t, got(t, refused, "the try returns"), want)
			require.NoError(t, writes.WaitHit(ctx)) // it counts when After has returned, which ends the try
			require.Equal(t, []int{optimism, 1}, []int{overtaken.Hits(), writes.Hits()})
			require.Len(t, f.Keys("-try"), 1, "its request is still there")
			c.Heal()
			f.NoKeys("-try")
		})
	}
}
