package virtual

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/check"
)

// adopting returns the rate limiter of a process that takes the rate that is stored, and stores r if none is.
func (d *desk) adopting(r concurrency.Rate) *concurrency.RateLimiter {
	l, err := concurrency.NewRateLimiter(d.session, "rate", r, &concurrency.RateLimiterOptions{AdoptRate: true})
	require.NoError(d.t, err)
	return l
}

// lives runs processes that live for so long each, one after the other with a pause in between.
func (k *takers) lives(t *testing.T, d *desk, each, pause, lasts time.Duration, r concurrency.Rate) {
	for begun := time.Now(); time.Since(begun) < lasts; time.Sleep(pause) {
		p, end := d.join(t)
		ctx, cancel := context.WithTimeout(context.Background(), each)
		for p.adopting(r).Wait(ctx) == nil {
			k.took(0)
		}
		<-ctx.Done()
		cancel()
		end(false)
	}
}

// TestSlowRateIsChanged: after SetRate to a lower rate or a greater burst, with a quiet time after it or not, processes
// that live for seconds get most of the new rate, and the first one the burst after a quiet time (A500 in
// internal/proof/tested-failures.md). In no window from then on is it more than the new rate and burst.
func TestSlowRateIsChanged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		to                        concurrency.Rate
		quiet, each, pause, lasts time.Duration
		first                     int // tokens of the first process
	}{
		{to: concurrency.Rate{PerSecond: 1.0 / 60, Burst: 1}, each: 3 * time.Second, pause: 2 * time.Second, lasts: 10 * time.Minute},
		{to: concurrency.Rate{PerSecond: 0.5, Burst: 10}, quiet: time.Hour, each: 3 * time.Second, pause: time.Millisecond, lasts: time.Minute, first: 10},
		{to: concurrency.Rate{PerSecond: 1.0 / 3600, Burst: 2}, quiet: 2 * time.Hour, each: time.Minute, pause: 10 * time.Minute, lasts: 10 * time.Hour, first: 2},
	} {
		t.Run(fmt.Sprint(c.to), func(t *testing.T) {
			t.Parallel()
			bubbleOn(t, 1, func(t *testing.T, on []*desk) {
				var k takers
				k.lives(t, on[0], 3*time.Second, time.Millisecond, 30*time.Second, concurrency.Rate{PerSecond: 0.5, Burst: 1})
				operator, end := on[0].join(t)
				require.NoError(t, operator.adopting(c.to).SetRate(t.Context(), c.to))
				end(false)
				changed := time.Now()
				time.Sleep(c.quiet)
				begun := time.Now()
				k.lives(t, on[0], c.each, c.pause, c.each, c.to)
				require.GreaterOrEqual(t, k.between(-1, begun, time.Now()), c.first)
				k.lives(t, on[0], c.each, c.pause, c.lasts, c.to)
				require.Greater(t, float64(k.between(-1, begun, time.Now())), c.lasts.Seconds()*c.to.PerSecond*0.7)
				require.NoError(t, check.Rate(k.from(changed), c.to.PerSecond, c.to.Burst))
			}, etcdfake.ExpireEvery(500*time.Millisecond))
		})
	}
}

// A500: where the rate was deleted by hand and a program stores a lower one, and where the stored tokens cannot be read,
// processes that live for seconds are served as well.
func TestSlowRateIsStoredAnew(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, d *desk, key string){
		"/limit": func(t *testing.T, d *desk, key string) {
			_, err := d.client.Delete(t.Context(), key)
			require.NoError(t, err)
		},
		"/bucket/rate/left": func(t *testing.T, d *desk, key string) {
			_, err := d.client.Put(t.Context(), key, "damaged")
			require.NoError(t, err)
			require.NoError(t, d.adopting(concurrency.Rate{PerSecond: 0.05, Burst: 1}).SetRate(t.Context(), concurrency.Rate{PerSecond: 0.05}))
		},
	} {
		bubbleOn(t, 1, func(t *testing.T, on []*desk) {
			var k takers
			k.lives(t, on[0], 3*time.Second, time.Millisecond, 10*time.Second, concurrency.Rate{PerSecond: 0.5, Burst: 1})
			keys := slices.DeleteFunc(on[0].server.Keys(prefix), func(key string) bool { return !strings.HasSuffix(key, name) })
			require.Len(t, keys, 1)
			change(t, on[0], keys[0])
			begun := time.Now()
			k.lives(t, on[0], 3*time.Second, time.Millisecond, 3*time.Minute, concurrency.Rate{PerSecond: 0.05, Burst: 1})
			require.Greater(t, k.between(-1, begun, time.Now()), 6)
		}, etcdfake.ExpireEvery(500*time.Millisecond))
	}
}

// TestRateIsDividedAnew: after a brake, and after the burst alone is raised, ten processes that take half of the rate
// together are refused almost never: the rate is divided as finely as a new one (A501 in
// internal/proof/tested-failures.md). From each raise on no window has more than the new rate and burst.
func TestRateIsDividedAnew(t *testing.T) {
	t.Parallel()
	full := concurrency.Rate{PerSecond: 100, Burst: 100}
	for name, steps := range map[string][]concurrency.Rate{
		"a brake":            {full, {PerSecond: 0.5, Burst: 100}, full},
		"a greater burst":    {{PerSecond: 100, Burst: 10}, full},
		"both, step by step": {{PerSecond: 10, Burst: 1}, {PerSecond: 20, Burst: 20}, {PerSecond: 100, Burst: 20}, full},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 10, func(t *testing.T, on []*desk) {
				var k takers
				ctx, stop := context.WithCancel(context.Background())
				var load sync.WaitGroup
				var mu sync.Mutex
				refused := 0
				for i, d := range on {
					load.Go(func() {
						for l := d.adopting(steps[0]); ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
							if l.Allow() == nil {
								k.took(i)
							} else {
								mu.Lock()
								refused++
								mu.Unlock()
							}
						}
					})
				}
				var raised time.Time
				for _, r := range steps[1:] {
					time.Sleep(10 * time.Second)
					require.NoError(t, on[0].adopting(r).SetRate(t.Context(), r))
					raised = time.Now()
				}
				time.Sleep(5 * time.Second)
				mu.Lock()
				refused = 0
				mu.Unlock()
				time.Sleep(time.Minute)
				stop()
				load.Wait()
				require.Less(t, refused, 60, "of 3,000")
				require.NoError(t, check.Rate(k.from(raised), full.PerSecond, full.Burst))
			})
		})
	}
}

// A504: while a raised rate is divided anew, calls at half of the rate are hardly refused: a process that has to ask for its
// shares anew counts as one that begins, for which a middleware waits whatever its Options.Wait is.
func TestRaiseRefusesFewCalls(t *testing.T) {
	t.Parallel()
	bubble(t, 10, func(t *testing.T, on []*desk) {
		first, full := concurrency.Rate{PerSecond: 100, Burst: 10}, concurrency.Rate{PerSecond: 100, Burst: 100}
		ctx, stop := context.WithCancel(context.Background())
		var load sync.WaitGroup
		var refused, anew atomic.Int64
		for _, d := range on {
			load.Go(func() {
				for l := d.adopting(first); ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
					err := l.Allow()
					if e, ok := errors.AsType[*concurrency.RateExceededError](err); ok && e.Starting {
						anew.Add(1)
						short, cancel := context.WithTimeout(ctx, time.Second)
						err = l.Wait(short)
						cancel()
					}
					if err != nil && ctx.Err() == nil {
						refused.Add(1)
					}
				}
			})
		}
		time.Sleep(10 * time.Second)
		refused.Store(0)
		anew.Store(0)
		require.NoError(t, on[0].adopting(full).SetRate(t.Context(), full))
		time.Sleep(5 * time.Second)
		stop()
		load.Wait()
		require.Less(t, refused.Load(), int64(10), "of 250; 14 and more if nothing waits")
		require.NotZero(t, anew.Load())
	})
}

// A501: beside a process that is cut off with shares from before a raise, no window has more than the new rate and burst;
// when its lease has ended the others have all of it.
func TestRateIsDividedAnewBesideOneCutOff(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]concurrency.Rate{
		"one share":  {{PerSecond: 100, Burst: 1}, {PerSecond: 100, Burst: 100}},
		"ten shares": {{PerSecond: 100, Burst: 10}, {PerSecond: 100, Burst: 100}},
		"twice":      {{PerSecond: 10, Burst: 1}, {PerSecond: 20, Burst: 20}, {PerSecond: 100, Burst: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 3, func(t *testing.T, on []*desk) {
				var k takers
				last := steps[len(steps)-1]
				stops := []func(){k.busy(0, on[0].adopting(steps[0]))}
				time.Sleep(5 * time.Second)
				on[0].client.Stall()
				for i, d := range on[1:] {
					stops = append(stops, k.busy(1+i, d.adopting(steps[0])))
				}
				for _, r := range steps[1:] {
					require.NoError(t, on[1].adopting(r).SetRate(t.Context(), r))
					time.Sleep(time.Second)
				}
				raised := time.Now()
				time.Sleep(ttl + 5*time.Second)
				alone := time.Now()
				time.Sleep(10 * time.Second)
				require.Greater(t, float64(k.between(-1, alone, time.Now())), 10*last.PerSecond*0.95)
				on[0].client.Heal()
				time.Sleep(10 * time.Second)
				for _, stop := range stops {
					stop()
				}
				require.NoError(t, check.Rate(k.from(raised.Add(-time.Second)), last.PerSecond, last.Burst))
			})
		})
	}
}

// A501: a share that was granted after a raise gives no token to a process that has not read the rate since: it would take
// as much as one share of the former division gives.
func TestRateOfSharesGrantedAfterARaise(t *testing.T) {
	t.Parallel()
	bubble(t, 10, func(t *testing.T, on []*desk) {
		var k takers
		full := concurrency.Rate{PerSecond: 100, Burst: 100}
		stops := []func(){k.busy(0, on[0].adopting(concurrency.Rate{PerSecond: 100, Burst: 1}))}
		time.Sleep(5*time.Second + 137*time.Millisecond)
		begun := time.Now()
		for i, d := range on[1:] {
			d.client.Inject(func(m etcdfake.Message) etcdfake.Fault { // it asks before the raise, and reads nothing after it
				if m.Method == "Txn" {
					return etcdfake.Fault{RequestDelay: 300 * time.Millisecond}
				}
				return etcdfake.Fault{DropRequest: m.Method == "Range" && time.Since(begun) > 200*time.Millisecond}
			})
			stops = append(stops, k.busy(1+i, d.adopting(full)))
		}
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, on[0].adopting(full).SetRate(t.Context(), full))
		raised := time.Now()
		time.Sleep(ttl)
		st, err := on[0].adopting(full).Status(t.Context())
		require.NoError(t, err)
		require.Len(t, st.Holders, len(on))
		for _, d := range on {
			d.client.Inject(nil)
		}
		time.Sleep(5 * time.Second)
		for _, stop := range stops {
			stop()
		}
		require.NoError(t, check.Rate(k.from(raised), full.PerSecond, full.Burst))
	})
}

// TestRatesThatChange: in a fleet whose processes come, go, die and are cut off, the rate is changed again and again. After
// each raise no window has more than the new rate and burst, until the next change that lowers one of them; and a TTL after
// the last change most of the rate is used.
func TestRatesThatChange(t *testing.T) {
	t.Parallel()
	rates := []concurrency.Rate{
		{PerSecond: 0.1, Burst: 3}, {PerSecond: 0.9, Burst: 5}, {PerSecond: 1, Burst: 1}, {PerSecond: 3, Burst: 3},
		{PerSecond: 20, Burst: 1}, {PerSecond: 20, Burst: 5}, {PerSecond: 50, Burst: 50}, {PerSecond: 50, Burst: 5},
	}
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 19))
			bubbleOn(t, 1, func(t *testing.T, on []*desk) {
				var k takers
				f := &rateFleet{t: t, k: &k, on: on[0], rnd: rnd}
				for range 4 {
					f.start()
				}
				now, from := concurrency.Rate{PerSecond: 1, Burst: 1}, time.Now()
				for range 14 {
					time.Sleep(time.Duration(rnd.IntN(30000)) * time.Millisecond)
					if rnd.IntN(2) == 0 {
						f.disturb()
						continue
					}
					to := rates[rnd.IntN(len(rates))]
					require.NoError(t, on[0].adopting(now).SetRate(t.Context(), to, concurrency.CreateLimit()))
					if to.PerSecond < now.PerSecond || to.Burst < now.Burst {
						time.Sleep(2 * ttl) // windows that begin until then are excluded
						from = time.Now()
					}
					now = to
				}
				time.Sleep(time.Minute)
				settled, lasts := time.Now(), max(time.Minute, time.Duration(20/now.PerSecond*float64(time.Second)))
				time.Sleep(lasts)
				used := k.between(-1, settled, time.Now())
				f.stop()
				require.NoError(t, check.Rate(k.from(from), now.PerSecond, now.Burst))
				require.Greater(t, float64(used), now.PerSecond*lasts.Seconds()*0.6, now)
			}, etcdfake.ExpireEvery(500*time.Millisecond))
		})
	}
}

// rateFleet is processes that take tokens of one rate.
type rateFleet struct {
	t     *testing.T
	k     *takers
	on    *desk
	rnd   *rand.Rand
	tasks []rateTask
}

type rateTask struct {
	*desk
	stop func()
	end  func(killed bool)
}

func (f *rateFleet) start() {
	p, end := f.on.join(f.t)
	f.tasks = append(f.tasks, rateTask{p, f.k.busy(len(f.tasks), p.adopting(concurrency.Rate{PerSecond: 1, Burst: 1})), end})
}

// disturb replaces a process, which ends or is killed, or cuts one off for a while.
func (f *rateFleet) disturb() {
	i := f.rnd.IntN(len(f.tasks))
	task := f.tasks[i]
	switch f.rnd.IntN(3) {
	case 0:
		task.stop()
		task.end(false)
	case 1:
		task.end(true)
		task.stop()
	default:
		task.client.Stall()
		time.Sleep(time.Duration(f.rnd.IntN(20000)) * time.Millisecond)
		task.client.Heal()
		return
	}
	f.tasks = append(f.tasks[:i], f.tasks[i+1:]...)
	f.start()
}

func (f *rateFleet) stop() {
	for _, task := range f.tasks {
		task.stop()
		task.end(false)
	}
}
