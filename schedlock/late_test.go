package schedlock_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// nine fires at nine, in the zone of the time that it is given, as robfig's schedules do.
type nine struct{}

func (nine) Next(t time.Time) time.Time {
	n := time.Date(t.Year(), t.Month(), t.Day(), 9, 0, 0, 0, t.Location())
	if !n.After(t) {
		n = n.AddDate(0, 0, 1)
	}
	return n
}

// Fire times of nine, and of a period of a day.
var (
	friday   = time.Date(2026, 3, 6, 9, 0, 0, 0, time.UTC)
	midnight = friday.Truncate(24 * time.Hour)
)

// loseRun starts attempt 1 at a tick and lets it be lost. meanwhile is called while it runs.
func (f fixture) loseRun(ctx context.Context, tick time.Time, meanwhile func()) {
	f.T.Helper()
	a := f.instance(nil, clock(tick).options())
	ctx, cancel := context.WithCancel(ctx)
	started, done := make(chan *schedlock.Run, 1), make(chan answer, 1)
	go func() {
		res, err := a.Do(ctx, "job", func(_ context.Context, r *schedlock.Run) error {
			started <- r
			<-ctx.Done() // the process makes no second attempt itself
			return nil
		}, schedlock.Tick(tick), ofNine, schedlock.Retries(1))
		done <- answer{res, err}
	}()
	r := got(f.T, started, "attempt 1 starts")
	meanwhile()
	require.NoError(f.T, f.RevokeLease(ctx, a.sess.Lease()))
	closed(f.T, r.Context().Done(), "attempt 1 is lost")
	cancel()
	require.Equal(f.T, schedlock.Lost, got(f.T, done, "attempt 1 returns").res.Outcome)
}

// A run was lost, and a process comes back much later. Retries starts the tick again only
// as late as a first attempt may start: until LateBy after the tick, or before the next one.
func TestRetriesAfterARestart(t *testing.T) {
	t.Parallel()
	tenMinutes, once := schedlock.LateBy(10*time.Minute), schedlock.OnMisfire(schedlock.Once)
	for name, tt := range map[string]struct {
		later time.Duration
		opts  []schedlock.JobOption
		want  schedlock.Outcome
	}{
		"LateBy has passed":                        {71 * time.Hour, []schedlock.JobOption{tenMinutes}, schedlock.Late},
		"LateBy ends now":                          {10 * time.Minute, []schedlock.JobOption{tenMinutes}, schedlock.Late},
		"LateBy has not passed":                    {9 * time.Minute, []schedlock.JobOption{tenMinutes}, schedlock.Ran},
		"LateBy is longer than the period":         {71 * time.Hour, []schedlock.JobOption{schedlock.LateBy(100 * time.Hour)}, schedlock.Ran},
		"the next fire time has passed":            {71 * time.Hour, nil, schedlock.Late},
		"the next fire time has not come":          {23 * time.Hour, nil, schedlock.Ran},
		"LateBy has passed, Once":                  {9 * time.Hour, []schedlock.JobOption{tenMinutes, once}, schedlock.Late},
		"the next fire time has not come, Once":    {23 * time.Hour, []schedlock.JobOption{once}, schedlock.Ran},
		"LateBy of a missed tick has passed, Once": {71 * time.Hour, []schedlock.JobOption{tenMinutes, once}, schedlock.Late},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			f.loseRun(ctx, friday, func() {})
			o := clock(friday.Add(tt.later)).options()
			results := make(chan schedlock.Result, 10)
			o.Done = func(r schedlock.Result, _ error) { results <- r }
			b := f.instance(nil, o)
			var starts atomic.Int64
			job, err := b.Job("job", nine{}, counted(&starts), append(tt.opts, schedlock.Retries(1))...)
			require.NoError(t, err)
			job.Next(friday.Add(tt.later))
			res := got(t, results, "it has looked for the lost run")
			require.Equal(t, tt.want, res.Outcome)
			r, err := b.Get(ctx, "job", friday)
			require.NoError(t, err)
			if tt.want == schedlock.Late {
				require.Equal(t, []any{schedlock.RunLost, 1}, []any{r.State, r.Attempt})
				require.Zero(t, starts.Load())
			} else {
				require.Equal(t, []any{schedlock.RunDone, 2}, []any{r.State, r.Attempt})
			}
		})
	}
}

// way is a call that starts a run, and may start it again.
type way struct {
	tick time.Time
	call func(ctx context.Context, in instance, fn schedlock.Func) error
}

// ways are all of them, with a bound after which nothing starts.
func ways() map[string]way {
	again, tenMinutes := schedlock.Retries(1), schedlock.LateBy(10*time.Minute)
	day := 24 * time.Hour
	job := func(trigger bool, opts ...schedlock.JobOption) way {
		return way{friday, func(ctx context.Context, in instance, fn schedlock.Func) error {
			j, err := in.Job("job", nine{}, fn, append(opts, again)...)
			if err != nil {
				return err
			}
			if trigger {
				_, err = j.Trigger(ctx)
			} else {
				_, err = j.RunContext(ctx)
			}
			return err
		}}
	}
	return map[string]way{
		"Job":                 job(false),
		"Job with LateBy":     job(false, tenMinutes),
		"Job with Once":       job(false, schedlock.OnMisfire(schedlock.Once)),
		"Trigger":             job(true),
		"Trigger with LateBy": job(true, tenMinutes),
		"Job with Periods": {midnight, func(ctx context.Context, in instance, fn schedlock.Func) error {
			j, err := in.Job("job", schedlock.Periods(day), fn, again)
			if err == nil {
				_, err = j.RunContext(ctx)
			}
			return err
		}},
		"Do with LateBy": {friday, func(ctx context.Context, in instance, fn schedlock.Func) error {
			_, err := in.Do(ctx, "job", fn, schedlock.Tick(friday), again, tenMinutes)
			return err
		}},
		"Do with Every": {midnight, func(ctx context.Context, in instance, fn schedlock.Func) error {
			_, err := in.Do(ctx, "job", fn, schedlock.Every(day), again)
			return err
		}},
		"Wrap": {midnight, func(ctx context.Context, in instance, fn schedlock.Func) error {
			only, err := schedlock.Wrap[cronJob](in.Locker, "job", day, again)
			if err == nil {
				only(cronFunc(func() { err = fn(ctx, nil) })).Run()
			}
			return err
		}},
		"gocronlock.New": {midnight, func(ctx context.Context, in instance, _ schedlock.Func) error {
			l, err := gocronlock.New[gocronLock](in.Locker, day, again)
			if err == nil {
				_, err = l.Lock(ctx, "job")
			}
			return err
		}},
		"gocronlock.NewCron": {friday, func(ctx context.Context, in instance, _ schedlock.Func) error {
			c, err := gocronlock.NewCron[gocronLock](in.Locker, &crontab{}, again)
			if err == nil {
				err = c.IsValid("1h", time.UTC, friday)
			}
			if err == nil {
				_, err = c.Lock(ctx, "job")
			}
			return err
		}},
	}
}

// The machine sleeps for three days, in which a run is lost. A call on standby does not
// start the tick again: its timers have not counted the sleep, so the clock decides.
func TestNoRetryAfterASleep(t *testing.T) {
	t.Parallel()
	for name, way := range ways() {
		if strings.HasPrefix(name, "Trigger") {
			continue // it is a tick of its own: no other call is on standby for it
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			h := clock(way.tick)
			o := h.options()
			results := make(chan schedlock.Result, 10)
			o.Done = func(r schedlock.Result, _ error) { results <- r }
			b := f.instance(nil, o)
			var starts atomic.Int64
			f.loseRun(ctx, way.tick, func() {
				b.client.ResetRequests()
				go func() { _ = way.call(ctx, b, counted(&starts)) }()
				require.Eventually(t, func() bool { return b.client.Requests()["Txn"] > 0 }, soon, 20*time.Millisecond, "it is on standby")
				h.set(h.now().Add(71 * time.Hour))
			})
			res := got(t, results, "the call returns")
			require.Equal(t, []any{schedlock.Late, way.tick}, []any{res.Outcome, res.Tick})
			require.Zero(t, starts.Load())
			r, err := b.Get(ctx, "job", way.tick)
			require.NoError(t, err)
			require.Equal(t, []any{schedlock.RunLost, 1}, []any{r.State, r.Attempt})
		})
	}
}

// The same with a run of one's own, which is lost while the machine sleeps.
func TestNoOwnRetryAfterASleep(t *testing.T) {
	t.Parallel()
	for name, way := range ways() {
		if strings.HasPrefix(name, "gocronlock.") {
			continue // whose tasks are never started again by the same process
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			h := clock(way.tick)
			o := h.options()
			results := make(chan schedlock.Result, 10)
			o.Done = func(r schedlock.Result, _ error) { results <- r }
			so, lost := losing(nil)
			a := f.instance(so, o)
			var starts atomic.Int64
			err := way.call(ctx, a, func(context.Context, *schedlock.Run) error {
				if starts.Add(1) == 1 {
					if err := f.RevokeLease(ctx, a.sess.Lease()); err != nil {
						t.Error(err)
					}
					<-lost
					h.set(h.now().Add(71 * time.Hour))
				}
				return nil
			})
			if !strings.HasPrefix(name, "Wrap") { // which returns nothing
				require.ErrorIs(t, err, schedlock.ErrLost)
			}
			require.Equal(t, schedlock.Lost, got(t, results, "the call returns").Outcome)
			require.EqualValues(t, 1, starts.Load())
		})
	}
}

// A claim is answered when it is too late to start: nothing starts, and nothing of the claim
// is left.
func TestClaimAnsweredTooLate(t *testing.T) {
	t.Parallel()
	for name, way := range ways() {
		switch name {
		case "Trigger", "Do with Every": // whose first attempts have no bound
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			h := clock(way.tick)
			o := h.options()
			results := make(chan schedlock.Result, 10)
			o.Done = func(r schedlock.Result, _ error) { results <- r }
			a := f.instance(nil, o)
			before := []schedlock.CallOption{schedlock.Tick(way.tick.AddDate(0, 0, -1)), schedlock.Retries(1)}
			if way.tick == midnight {
				before = append(before, schedlock.Every(24*time.Hour))
			}
			_, err := a.Do(ctx, "job", nothing, before...) // so that the next claim is not void
			require.NoError(t, err)
			require.Equal(t, schedlock.Ran, got(t, results, "the tick before").Outcome)
			inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldResponse})
			var starts atomic.Int64
			go func() { _ = way.call(ctx, a, counted(&starts)) }()
			require.NoError(t, inj.WaitHit(ctx))
			h.set(h.now().Add(71 * time.Hour))
			require.NoError(t, inj.Release())
			res := got(t, results, "the call returns")
			require.Equal(t, []any{schedlock.Late, way.tick}, []any{res.Outcome, res.Tick})
			require.Zero(t, starts.Load())
			_, err = a.Get(ctx, "job", way.tick)
			require.ErrorIs(t, err, schedlock.ErrGone)
			f.NoKeys("/lock")
		})
	}
}
