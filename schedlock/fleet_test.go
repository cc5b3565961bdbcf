package schedlock_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// J9: a claim without effect leaves nothing, not for a moment, that could make a third one fail.
func TestLosersLeaveNothing(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, b, c := f.instance(nil, nil), f.instance(nil, nil), f.instance(nil, nil)
	for n := range 10 {
		end := make(chan struct{})
		started, done := do(ctx, a.Locker, "job", end, schedlock.Tick(tick(2*n)))
		got(t, started, "it starts")
		before := f.Values("/job/")
		events := f.Client().Watch(ctx, f.Keys("/lock")[0])
		for i := range 3 {
			res, err := b.Do(ctx, "job", nothing, schedlock.Tick(tick(2*n+i%2)))
			require.NoError(t, err)
			require.Contains(t, []schedlock.Outcome{schedlock.Claimed, schedlock.StillRunning}, res.Outcome)
		}
		require.Equal(t, before, f.Values("/job/"))
		close(end)
		require.NoError(t, got(t, done, "it ends").err)
		require.Len(t, got(t, events, "the lock").Events, 1)
		var wg sync.WaitGroup
		var ran atomic.Int64
		for _, in := range []instance{b, c} {
			wg.Go(func() {
				res, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(2*n+1)))
				if err != nil {
					t.Error(err)
				}
				if res.Outcome == schedlock.Ran {
					ran.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, ran.Load())
	}
}

// J21: several instances, calls for the same and for neighboring ticks and for none, runs of
// all lengths. As a history: no overlap, tokens and ticks rise, one start for each tick.
func TestHistoryOfClaims(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	type one struct {
		token      int64
		tick       time.Time
		begin, end int64
	}
	var mu sync.Mutex
	var all []one
	var clock atomic.Int64
	var now atomic.Int64 // which tick it is
	var wg sync.WaitGroup
	for i := range 4 {
		in := f.instance(nil, nil)
		r := rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			for range 40 {
				n := now.Add(int64(r.IntN(2)))
				lasts := time.Duration(r.IntN(4)) * time.Millisecond
				_, err := in.Do(ctx, "job", func(_ context.Context, run *schedlock.Run) error {
					x := one{token: run.Token(), tick: run.Tick(), begin: clock.Add(1)}
					time.Sleep(lasts)
					x.end = clock.Add(1)
					mu.Lock()
					defer mu.Unlock()
					all = append(all, x)
					return nil
				}, schedlock.Tick(tick(int(n)-r.IntN(2))))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b one) int { return int(a.token - b.token) })
	require.Greater(t, len(all), 10)
	for i := 1; i < len(all); i++ {
		require.Less(t, all[i-1].token, all[i].token)
		require.True(t, all[i-1].tick.Before(all[i].tick), "%v %v", all[i-1], all[i])
		require.Less(t, all[i-1].end, all[i].begin)
	}
}

// J27: processes join, leave, and die while they have nothing to do, all at fire times. Each
// tick starts once.
func TestChangingFleet(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	fleet := []instance{f.instance(nil, nil), f.instance(nil, nil), f.instance(nil, nil)}
	const ticks = 24
	var starts [ticks]atomic.Int64
	for n := range ticks {
		var wg sync.WaitGroup
		call := func(in instance, undisturbed bool) {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, soon)
				defer cancel()
				_, err := in.Do(ctx, "job", counted(&starts[n]), schedlock.Tick(tick(n)))
				if undisturbed && err != nil {
					t.Error(err)
				}
			})
		}
		leaves := n%2 == 0
		for i, in := range fleet {
			call(in, i > 0 || !leaves)
		}
		if leaves { // the oldest closes in the midst of it
			old := fleet[0]
			wg.Go(func() {
				time.Sleep(time.Duration(n) * time.Millisecond / 2)
				if err := old.sess.Close(ctx); err != nil {
					t.Error(err)
				}
			})
			fleet = fleet[1:]
		}
		if n%3 == 0 || len(fleet) < 3 { // one joins
			in := f.instance(nil, nil)
			fleet = append(fleet, in)
			call(in, true)
		}
		wg.Wait()
		if n%5 == 4 { // one dies, and the others still count on it
			fleet[0].client.Cut()
			defer fleet[0].client.Heal()
			fleet = append(fleet[1:], f.instance(nil, nil))
		}
	}
	for n := range ticks {
		require.EqualValues(t, 1, starts[n].Load(), n)
	}
	h, err := fleet[0].History(ctx, "job")
	require.NoError(t, err)
	for _, r := range h {
		require.Equal(t, schedlock.RunDone, r.State)
	}
}

// J22: no process was alive for two weeks. With Skip nothing is started for what was missed,
// with Once the latest tick is, once in the whole fleet.
func TestTwoWeeksOfMissedTicks(t *testing.T) {
	t.Parallel()
	for policy, want := range map[schedlock.Misfire]int{schedlock.Skip: 0, schedlock.Once: 1} {
		t.Run([]string{"skip", "once"}[policy], func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			h := clock(time.Date(2026, 3, 15, 12, 0, 30, 0, time.UTC))
			old := h.now().Add(-14 * 24 * time.Hour).Truncate(time.Minute)
			_, err := f.instance(nil, h.options()).Do(ctx, "job", nothing, schedlock.Tick(old), schedlock.Planned(grid(time.Minute), 0))
			require.NoError(t, err)
			var starts atomic.Int64
			var over atomic.Bool // a process that looks for what was missed only now is closed while it does
			defer over.Store(true)
			reported := make(chan schedlock.Result, 100)
			var jobs []*schedlock.Job
			for range 3 {
				o := h.options()
				o.Done = func(r schedlock.Result, err error) {
					if err != nil && !over.Load() {
						t.Error(err)
					}
					reported <- r
				}
				j, err := f.instance(nil, o).Job("job", grid(time.Minute), counted(&starts), schedlock.OnMisfire(policy))
				require.NoError(t, err)
				require.Equal(t, h.now().Truncate(time.Minute).Add(time.Minute), j.Next(h.now()))
				jobs = append(jobs, j)
			}
			if policy == schedlock.Once {
				for { // later calls find nothing
					r := got(t, reported, "what was missed")
					require.Equal(t, h.now().Truncate(time.Minute), r.Tick)
					if r.Outcome == schedlock.Ran {
						break
					}
				}
			}
			require.EqualValues(t, want, starts.Load())
			h.set(h.now().Add(30 * time.Second)) // and it continues
			for _, j := range jobs {
				_, err := j.RunContext(ctx)
				require.NoError(t, err)
			}
			// It may have been one that only now has looked for what was missed.
			require.Eventually(t, func() bool { return starts.Load() > int64(want) }, soon, 20*time.Millisecond)
			require.EqualValues(t, want+1, starts.Load())
			records, err := f.instance(nil, h.options()).History(ctx, "job")
			require.NoError(t, err)
			require.Len(t, records, want+2)
		})
	}
}
