package virtual

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/check"
)

// takers records when the calls of a rate limiter succeed, in all processes.
type takers struct {
	mu    sync.Mutex
	spans []check.Span
	of    []int // process of each span
}

func (k *takers) took(process int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.spans, k.of = append(k.spans, check.Span{From: now, To: now}), append(k.of, process)
}

// between counts what a process has taken in some time, or all if process is below 0.
func (k *takers) between(process int, from, to time.Time) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, s := range k.spans {
		if (process < 0 || k.of[i] == process) && !s.From.Before(from) && s.From.Before(to) {
			n++
		}
	}
	return n
}

// from returns what was taken from a time on.
func (k *takers) from(from time.Time) (spans []check.Span) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.spans {
		if !s.From.Before(from) {
			spans = append(spans, s)
		}
	}
	return spans
}

func (d *desk) rate(perSecond float64, burst int) *concurrency.RateLimiter {
	l, err := concurrency.NewRateLimiter(d.session, "rate", concurrency.Rate{PerSecond: perSecond, Burst: burst}, nil)
	require.NoError(d.t, err)
	return l
}

// busy has a process wait for one token after the other until stop is called.
func (k *takers) busy(process int, l *concurrency.RateLimiter) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for l.Wait(ctx) == nil {
				k.took(process)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// TestRateOfOne: a single process takes the whole rate from about a second on, and the burst after a
// quiet time; it returns its shares when it is idle.
func TestRateOfOne(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		var k takers
		l := on[0].rate(100, 50)
		begun := time.Now()
		stop := k.busy(0, l)
		time.Sleep(time.Minute)
		stop()
		require.Less(t, k.spans[0].From.Sub(begun), time.Second, "the first token")
		require.Greater(t, k.between(-1, begun.Add(2*time.Second), begun.Add(12*time.Second)), 990)
		time.Sleep(5 * time.Second)
		n := 0
		for l.Allow() == nil {
			k.took(0)
			n++
		}
		require.Equal(t, 50, n, "the burst")
		var exceeded *concurrency.RateExceededError
		require.ErrorAs(t, l.Allow(), &exceeded)
		require.Positive(t, exceeded.RetryAfter)
		time.Sleep(exceeded.RetryAfter)
		require.NoError(t, l.Allow())
		k.took(0)
		require.NoError(t, check.Rate(k.spans, 100, 50))
		time.Sleep(61 * time.Second)
		st, err := l.Status(t.Context())
		require.NoError(t, err)
		require.Empty(t, st.Holders)
		require.Equal(t, concurrency.Rate{PerSecond: 100, Burst: 50}, st.Rate)
		require.Error(t, l.Allow(), "no share, and no token kept")
	})
}

// The first call of Allow has the process acquire a share, although it has not read the rate yet.
func TestRateOfOneCall(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		l := on[0].rate(100, 50)
		require.ErrorContains(t, l.Allow(), "has not read the rate")
		time.Sleep(3 * time.Second)
		for range 5 {
			require.NoError(t, l.Allow())
			time.Sleep(59 * time.Second)
		}
		require.NoError(t, l.Allow())
		for range 5 {
			time.Sleep(62 * time.Second) // it was idle, and has returned its shares
			require.ErrorIs(t, l.Allow(), concurrency.ErrRateExceeded)
		}
		require.NoError(t, l.Wait(t.Context()))
	})
}

// A process that was idle compares its rate with the stored one, and not with the one that it has read
// before.
func TestRateAfterAnIdleTime(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		ctx := t.Context()
		former := on[0].rate(100, 50)
		require.NoError(t, former.Wait(ctx))
		time.Sleep(2 * time.Minute)
		require.NoError(t, on[1].rate(100, 50).SetRate(ctx, concurrency.Rate{PerSecond: 200, Burst: 60}, concurrency.CreateLimit()))
		require.NoError(t, on[0].rate(200, 60).Wait(ctx))
		time.Sleep(2 * time.Minute)
		require.ErrorIs(t, on[0].rate(200, 60).Allow(), concurrency.ErrRateExceeded)
		require.ErrorIs(t, on[0].rate(100, 50).Wait(ctx), concurrency.ErrLimitMismatch)
	})
}

// N15: shares move in about a second to a process that begins, from one that never idles, and
// back when it ends.
func TestRateMoves(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		for _, d := range on {
			d.client.Inject(func(etcdfake.Message) etcdfake.Fault {
				return etcdfake.Fault{RequestDelay: 2 * time.Millisecond, ResponseDelay: 2 * time.Millisecond}
			})
		}
		var k takers
		stop := k.busy(0, on[0].rate(100, 50))
		time.Sleep(30 * time.Second)
		begun := time.Now()
		end := k.busy(1, on[1].rate(100, 50))
		time.Sleep(30 * time.Second)
		ended := time.Now()
		end()
		time.Sleep(30 * time.Second)
		stop()
		second := func(n float64) time.Time { return begun.Add(time.Duration(n * float64(time.Second))) }
		require.GreaterOrEqual(t, k.between(1, second(1), second(2)), 40, "about half of the rate")
		for _, process := range []int{0, 1} {
			require.InDelta(t, 500, k.between(process, second(2), second(12)), 20, "halves")
		}
		require.Greater(t, k.between(0, ended.Add(2*time.Second), ended.Add(12*time.Second)), 950, "all again")
		require.NoError(t, check.Rate(k.spans, 100, 50))
	})
}

// TestRateTakesTurns: more processes than shares take turns, none starves, and most of the rate is used.
func TestRateTakesTurns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		perSecond float64
		burst     int
	}{{20, 2}, {0.5, 1}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			bubble(t, 5, func(t *testing.T, on []*desk) {
				var k takers
				var stops []func()
				begun := time.Now()
				for i, d := range on {
					stops = append(stops, k.busy(i, d.rate(c.perSecond, c.burst)))
				}
				const minutes = 5
				time.Sleep(minutes * time.Minute)
				for _, stop := range stops {
					stop()
				}
				all := c.perSecond * minutes * 60
				for i := range on {
					require.Greater(t, float64(k.between(i, begun, time.Now())), all/5/2, "process %d", i)
				}
				require.Greater(t, float64(len(k.spans)), all/2)
				require.NoError(t, check.Rate(k.spans, c.perSecond, c.burst))
			})
		})
	}
}

// TestRateIsLowered: a second after SetRate has returned the lower rate is in force, and in a process
// that cannot reach etcd within a TTL. A raised one is in force without a moment above it.
func TestRateIsLowered(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]concurrency.Rate{
		"slower": {PerSecond: 10, Burst: 50}, "smaller": {PerSecond: 100, Burst: 3}, "both": {PerSecond: 5, Burst: 2},
	} {
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", cut off: ", cut), func(t *testing.T) {
				t.Parallel()
				bubble(t, 3, func(t *testing.T, on []*desk) {
					var k takers
					var stops []func()
					for i, d := range on {
						stops = append(stops, k.busy(i, d.rate(100, 50)))
					}
					time.Sleep(10*time.Second + 137*time.Millisecond)
					if cut {
						on[2].client.Stall()
					}
					l := on[0].rate(100, 50)
					require.NoError(t, l.SetRate(t.Context(), to))
					inForce := time.Now().Add(time.Second)
					if cut {
						inForce = time.Now().Add(ttl)
					}
					time.Sleep(time.Minute)
					on[2].client.Heal()
					time.Sleep(10 * time.Second)
					late := k.from(inForce)
					require.NoError(t, check.Rate(late, to.PerSecond, to.Burst))
					require.Greater(t, float64(k.between(-1, inForce.Add(20*time.Second), inForce.Add(50*time.Second))), 30*to.PerSecond*0.7)
					raised := time.Now()
					require.NoError(t, l.SetRate(t.Context(), concurrency.Rate{PerSecond: 200, Burst: 60}))
					time.Sleep(20 * time.Second)
					for _, stop := range stops {
						stop()
					}
					require.NoError(t, check.Rate(k.from(raised), 200, 60))
					require.Greater(t, k.between(-1, raised.Add(5*time.Second), raised.Add(15*time.Second)), 1900)
				})
			})
		}
	}
}

// TestRateUnderFaults: processes come and go, are cut off past their leases and return, lose answers,
// and are slow; in no window is more taken than the rate and the burst allow.
func TestRateUnderFaults(t *testing.T) {
	t.Parallel()
	seeds := []uint64{0, 1, 3, 5, 7} // 200, 3, 20, 3 and 20 per second, with bursts of 57, 20, 68, 5 and 44
	if testing.Short() {
		seeds = []uint64{7} // 200 per second take half a minute of processor time under the race detector
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 15))
			per, burst := []float64{3, 20, 200}[rnd.IntN(3)], 1+rnd.IntN(80)
			bubble(t, 5, func(t *testing.T, on []*desk) {
				var k takers
				stops := make([]func(), len(on))
				cut := make([]bool, len(on))
				for range 150 {
					time.Sleep(time.Duration(rnd.Int64N(int64(4 * time.Second))))
					i := rnd.IntN(len(on))
					d := on[i]
					switch what := rnd.IntN(6); {
					case what < 2 && stops[i] == nil:
						stops[i] = k.busy(i, d.rate(per, burst))
					case what < 2:
						stops[i]()
						stops[i] = nil
					case what == 2:
						if cut[i] = !cut[i]; cut[i] {
							d.client.Stall()
						} else {
							d.client.Heal()
						}
					case what == 3 && !cut[i]:
						d.client.Refuse()
						time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Second))))
						d.client.Heal()
					case what == 4:
						late := time.Duration(rnd.Int64N(int64(time.Second)))
						d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
							return etcdfake.Fault{RequestDelay: late, DropResponse: m.Method == "Txn" && late > 900*time.Millisecond}
						})
					default:
						l := d.rate(per, burst)
						for l.Allow() == nil {
							k.took(i)
						}
					}
				}
				for i, d := range on {
					d.client.Inject(nil)
					d.client.Heal()
					if stops[i] == nil {
						stops[i] = k.busy(i, d.rate(per, burst))
					}
				}
				synctest.Wait()
				time.Sleep(time.Minute)
				healed := time.Now()
				time.Sleep(30 * time.Second)
				for _, stop := range stops {
					stop()
				}
				require.NoError(t, check.Rate(k.spans, per, burst))
				require.Greater(t, float64(k.between(-1, healed, time.Now())), 30*per*0.6, "after the faults most of the rate is used")
			})
		})
	}
}
