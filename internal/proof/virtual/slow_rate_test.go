package virtual

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/record"
)

// join starts one more process on the etcd of a desk. end closes its session, or, if it is killed, leaves that to its lease.
func (d *desk) join(t *testing.T) (process *desk, end func(killed bool)) {
	t.Helper()
	p := d.limited(t, 0)
	return p, func(killed bool) {
		if killed {
			p.client.Refuse()
		}
		p.close(time.Second)
		p.client.Close()
	}
}

// TestSlowRateOfShortLives: a rate below one per second serves processes that live for seconds, one after the other or
// several at a time, and gives them most of it (A170 in
// internal/proof/tested-failures.md). Of processes that are killed the next one is served after their leases. In no window
// does it give more than the rate and the burst.
func TestSlowRateOfShortLives(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		perSecond    float64
		burst, width int
		pause        time.Duration // between two of them
		killed       bool
		used         float64 // of the rate
	}{
		{0.2, 1, 1, 0, false, 0.75}, {0.2, 1, 4, 0, false, 0.75}, {0.05, 3, 1, 0, false, 0.85}, {0.9, 2, 2, 0, false, 0.5}, {1.0 / 60, 10, 1, 0, false, 0.9},
		{0.2, 1, 1, 20 * time.Second, false, 0.2}, {1.0 / 60, 10, 1, 30 * time.Second, true, 0.4}, {0.01, 1, 1, time.Minute, true, 0.5},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			bubbleOn(t, 1, func(t *testing.T, on []*desk) {
				var k takers
				var fleet sync.WaitGroup
				begun := time.Now()
				lasts := 10 * time.Minute / time.Duration(c.width) // about as many lives in each case
				for place := range c.width {
					fleet.Go(func() {
						time.Sleep(time.Duration(place) * 1100 * time.Millisecond)
						for time.Since(begun) < lasts {
							p, end := on[0].join(t)
							ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
							for p.rate(c.perSecond, c.burst).Wait(ctx) == nil {
								k.took(place)
							}
							<-ctx.Done()
							cancel()
							end(c.killed)
							time.Sleep(max(c.pause, 10*time.Millisecond))
						}
					})
				}
				fleet.Wait()
				require.NoError(t, check.Rate(k.spans, c.perSecond, c.burst))
				require.Greater(t, float64(len(k.spans)), c.used*c.perSecond*lasts.Seconds())
			}, etcdfake.ExpireEvery(500*time.Millisecond))
		})
	}
}

// TestSlowRateOfQuickDeaths: processes of a slow rate that are killed within less than a TTL of each other, and live for
// less, are not served after the first: before each of them in the queue is one that is dead, until its lease ends. That
// is documented (docs/limits.md, rates). Those that close their sessions are served, and so is the next one when
// no other is killed for a TTL.
func TestSlowRateOfQuickDeaths(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{true, false} {
		bubbleOn(t, 1, func(t *testing.T, on []*desk) {
			var k takers
			begun := time.Now()
			for time.Since(begun) < 5*time.Minute {
				p, end := on[0].join(t)
				ctx := within(t, 3*time.Second)
				for p.rate(0.2, 1).Wait(ctx) == nil {
					k.took(0)
				}
				<-ctx.Done()
				end(killed)
			}
			if !killed {
				require.Greater(t, len(k.spans), 45, "of 60")
				return
			}
			require.Len(t, k.spans, 1)
			p, end := on[0].join(t)
			begun = time.Now()
			require.NoError(t, p.rate(0.2, 1).Wait(within(t, time.Minute)))
			require.Less(t, time.Since(begun), ttl+2*time.Second)
			end(false)
		}, etcdfake.ExpireEvery(500*time.Millisecond))
	}
}

// TestSlowRateOvertaken: a process whose share another one has taken over, as only the exceptions of G4 allow, takes none
// of the tokens that it has counted once it knows: it begins with what the other one has stored.
func TestSlowRateOvertaken(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		ctx := t.Context()
		l := on[0].rate(1e-3, 3)
		require.NoError(t, l.Wait(ctx))
		etcd := on[0].client.Client
		found, err := etcd.Get(ctx, prefix, clientv3.WithPrefix())
		require.NoError(t, err)
		lease, err := etcd.Grant(ctx, 3003)
		require.NoError(t, err)
		stored := 0
		for _, kv := range found.Kvs {
			switch key := string(kv.Key); {
			case strings.HasSuffix(key, "/bucket/rate/left"):
				_, err = etcd.Put(ctx, key, record.Tokens{Left: 0, Lease: int64(lease.ID), TTL: lease.TTL}.Encode())
				stored++
			case strings.HasSuffix(key, "/bucket/rate/timer"):
				_, err = etcd.Put(ctx, key, "", clientv3.WithLease(lease.ID))
				stored++
			}
			require.NoError(t, err)
		}
		require.Equal(t, 2, stored)
		time.Sleep(ttl) // it notes again that it takes tokens
		err = l.Allow()
		var exceeded *concurrency.RateExceededError
		require.ErrorAs(t, err, &exceeded)
		require.Greater(t, exceeded.RetryAfter, 900*time.Second)
		require.NoError(t, l.Wait(within(t, 1010*time.Second)), "it continues from there")
	})
}

// TestSlowRateOfSeldomCalls: a process that asks more seldom than the rate allows never waits, whether it lives on, is a new
// one each time, or was killed the last time.
func TestSlowRateOfSeldomCalls(t *testing.T) {
	t.Parallel()
	const perSecond, burst = 10.0 / 3600, 10
	for _, how := range []string{"lives on", "closes", "is killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				var k takers
				for range 20 {
					p, end := on[0], func(bool) {}
					if how != "lives on" {
						p, end = on[0].join(t)
					}
					for range 5 { // of ten, so that the notes of a process that was killed do not matter
						begun := time.Now()
						require.NoError(t, p.rate(perSecond, burst).Wait(within(t, time.Minute)))
						require.Less(t, time.Since(begun), time.Second)
						k.took(0)
					}
					time.Sleep(time.Minute)
					end(how == "is killed")
					time.Sleep(time.Hour)
				}
				require.NoError(t, check.Rate(k.spans, perSecond, burst))
			})
		})
	}
}

// TestSlowBurstIsShared: processes that begin together share the burst at once, although it is one share.
func TestSlowBurstIsShared(t *testing.T) {
	t.Parallel()
	bubble(t, 8, func(t *testing.T, on []*desk) {
		var k takers
		var all sync.WaitGroup
		begun := time.Now()
		for i, d := range on {
			all.Go(func() {
				if d.rate(0.1, 6).Wait(within(t, 3*time.Second)) == nil {
					k.took(i)
				}
			})
		}
		all.Wait()
		require.Equal(t, 6, k.between(-1, begun, begun.Add(2*time.Second)))
		require.NoError(t, check.Rate(k.spans, 0.1, 6))
	})
}

// TestSlowRateIsRaised: a raised rate and burst are covered by the promise from the moment of the change, although tokens
// are stored under the former ones.
func TestSlowRateIsRaised(t *testing.T) {
	t.Parallel()
	for _, to := range []concurrency.Rate{{PerSecond: 0.1, Burst: 20}, {PerSecond: 0.8, Burst: 1}, {PerSecond: 50, Burst: 20}} {
		bubble(t, 3, func(t *testing.T, on []*desk) {
			ctx := t.Context()
			var k takers
			former, err := concurrency.NewRateLimiter(on[0].session, "rate", concurrency.Rate{PerSecond: 0.1, Burst: 1}, nil)
			require.NoError(t, err)
			require.NoError(t, former.Wait(ctx))
			k.took(0)
			time.Sleep(7 * time.Second)
			require.NoError(t, former.SetRate(ctx, to))
			for i, d := range on {
				defer k.busy(i, d.rate(to.PerSecond, to.Burst))()
			}
			time.Sleep(10 * time.Minute)
			spans := k.from(time.Time{})
			require.NoError(t, check.Rate(spans, to.PerSecond, to.Burst))
			require.Greater(t, float64(len(spans)), 0.6*600*to.PerSecond, to)
		})
	}
}

// TestSlowRateUnderFaults: processes that come, close, are killed, are cut off, lose answers and are slow take no more of a
// slow rate than it allows, in any window, and most of it after the faults.
func TestSlowRateUnderFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 44))
			per, burst := []float64{0.05, 0.3, 0.9}[rnd.IntN(3)], 1+rnd.IntN(5)
			bubbleOn(t, 1, func(t *testing.T, on []*desk) {
				type one struct {
					*desk
					end  func(bool)
					stop func()
					cut  bool
				}
				var k takers
				var live []*one
				start := func() {
					p, end := on[0].join(t)
					live = append(live, &one{desk: p, end: end, stop: k.busy(len(live), p.rate(per, burst))})
				}
				finish := func(i int, killed bool) {
					p := live[i]
					live = append(live[:i:i], live[i+1:]...)
					if killed {
						p.client.Refuse()
					} else {
						p.client.Inject(nil)
						p.client.Heal()
					}
					p.stop()
					p.end(killed)
				}
				for range 200 {
					time.Sleep(time.Duration(rnd.Int64N(int64(6 * time.Second))))
					if len(live) == 0 || len(live) < 5 && rnd.IntN(3) == 0 {
						start()
						continue
					}
					i := rnd.IntN(len(live))
					switch p := live[i]; rnd.IntN(5) {
					case 0:
						finish(i, false)
					case 1:
						finish(i, true)
					case 2:
						if p.cut = !p.cut; p.cut {
							p.client.Stall()
						} else {
							p.client.Heal()
						}
					case 3:
						late := time.Duration(rnd.Int64N(int64(time.Second)))
						p.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
							return etcdfake.Fault{RequestDelay: late, DropResponse: m.Method == "Txn" && late > 800*time.Millisecond}
						})
					case 4:
						p.client.Inject(nil)
					}
				}
				for len(live) > 0 {
					finish(0, false)
				}
				start()
				synctest.Wait()
				time.Sleep(time.Minute)
				healed := time.Now()
				time.Sleep(5 * time.Minute)
				finish(0, false)
				require.NoError(t, check.Rate(k.spans, per, burst))
				require.Greater(t, float64(k.between(-1, healed, time.Now())), 300*per*0.8)
			}, etcdfake.ExpireEvery(500*time.Millisecond))
		})
	}
}
