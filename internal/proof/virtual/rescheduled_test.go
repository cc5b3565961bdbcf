package virtual

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// daily fires each day, so long after midnight.
type daily time.Duration

func (d daily) Next(t time.Time) time.Time {
	next := t.UTC().Truncate(24 * time.Hour).Add(time.Duration(d))
	if !next.After(t) {
		next = next.Add(24 * time.Hour)
	}
	return next
}

// OnMisfire(Once) starts no tick of a new schedule from before that was in force, in each process of the deploy (A460 in
// internal/proof/tested-failures.md): invoices of nine o'clock were moved to the evening at eight, and were sent at once, and in
// the evening again. A tick that the former schedule has missed counts. The same holds if the former process has removed its Job (A562).
func TestOnceAfterAnotherSchedule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		former, next time.Duration // of the schedules
		deploy       time.Duration // from the midnight after the run
		want         []time.Duration
	}{
		"before the former one was due": {9 * time.Hour, 22 * time.Hour, 8 * time.Hour, nil},
		"the former one was missed":     {9 * time.Hour, 22 * time.Hour, 23 * time.Hour, []time.Duration{22 * time.Hour}},
		"the new one has not come":      {9 * time.Hour, 22 * time.Hour, 12 * time.Hour, nil},
		"earlier in the day":            {9 * time.Hour, 7 * time.Hour, 8 * time.Hour, nil},
		"the same one was missed":       {9 * time.Hour, 9 * time.Hour, 12 * time.Hour, []time.Duration{9 * time.Hour}},
		"the same one is due":           {9 * time.Hour, 9 * time.Hour, 8 * time.Hour, nil},
		"after a year":                  {9 * time.Hour, 22 * time.Hour, 365*24*time.Hour + 8*time.Hour, []time.Duration{364*24*time.Hour + 22*time.Hour}},
	} {
		for how, remove := range map[string]bool{"": false, ", removed": true} {
			t.Run(name+how, func(t *testing.T) {
				bubble(t, 1, func(t *testing.T, on []*desk) {
					d := on[0]
					var ticks []string
					job := func(at time.Duration) *schedlock.Job {
						d.open(concurrency.SessionOptions{TTL: 5 * time.Minute}) // for days
						j, err := d.locker().Job("job", daily(at), func(_ context.Context, r *schedlock.Run) error {
							ticks = append(ticks, r.Tick().Format(time.DateTime))
							return nil
						}, schedlock.OnMisfire(schedlock.Once))
						require.NoError(t, err)
						j.Next(time.Now())
						time.Sleep(20 * time.Minute) // plans are written, and what was missed is run
						return j
					}
					former := job(c.former)
					time.Sleep(time.Until(daily(c.former).Next(time.Now())))
					former.Run()
					require.Len(t, ticks, 1)
					midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
					if remove {
						require.NoError(t, former.Remove(t.Context()))
						st, err := d.locker().Status(t.Context(), "job")
						require.NoError(t, err)
						require.Nil(t, st.Plan)
					}
					require.NoError(t, d.session.Close(t.Context()))

					time.Sleep(time.Until(midnight.Add(c.deploy)))
					job(c.next)
					require.NoError(t, d.session.Close(t.Context()))
					job(c.next) // the next process of a rolling deploy
					var want []string
					for _, at := range c.want {
						want = append(want, midnight.Add(at).Format(time.DateTime))
					}
					require.Equal(t, fmt.Sprint(want), fmt.Sprint(ticks[1:]))
				})
			})
		}
	}
}

// The plan of a job that no process has had for a week is retired, and what it says of missed ticks is left: OnMisfire(Once) decides
// as before that. A job of calls without a schedule has missed none (A562).
func TestOnceAfterARetiredPlan(t *testing.T) {
	t.Parallel()
	const nine, night = 9 * time.Hour, 22 * time.Hour
	for name, c := range map[string]struct {
		calls bool
		next  time.Duration
		want  time.Duration // before the midnight of the deploy, or 0 for none
	}{
		"the same schedule":        {false, nine, 15 * time.Hour},
		"another one":              {false, night, 2 * time.Hour},
		"calls without a schedule": {true, night, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				var ticks []string
				run := func(_ context.Context, r *schedlock.Run) error {
					ticks = append(ticks, r.Tick().Format(time.DateTime))
					return nil
				}
				for _, d := range on {
					d.open(concurrency.SessionOptions{TTL: 5 * time.Minute})
				}
				other, err := on[1].locker().Job("other", daily(nine), noWork)
				require.NoError(t, err)
				other.Next(time.Now())
				l := on[0].locker()
				if c.calls {
					_, err = l.Do(t.Context(), "job", run)
				} else {
					var j *schedlock.Job
					j, err = l.Job("job", daily(nine), run, schedlock.OnMisfire(schedlock.Once))
					require.NoError(t, err)
					j.Next(time.Now())
					time.Sleep(time.Until(daily(nine).Next(time.Now())))
					_, err = j.RunContext(t.Context())
				}
				require.NoError(t, err)
				require.Len(t, ticks, 1)
				require.NoError(t, on[0].session.Close(t.Context()))
				time.Sleep(9 * 24 * time.Hour)
				time.Sleep(time.Until(daily(8 * time.Hour).Next(time.Now())))
				midnight := time.Now().Truncate(24 * time.Hour)

				st, err := on[1].locker().Status(t.Context(), "job")
				require.NoError(t, err)
				require.Nil(t, st.Plan, "it is retired")
				for range 2 { // processes
					on[0].open(concurrency.SessionOptions{TTL: 5 * time.Minute})
					j, err := on[0].locker().Job("job", daily(c.next), run, schedlock.OnMisfire(schedlock.Once))
					require.NoError(t, err)
					j.Next(time.Now())
					time.Sleep(20 * time.Minute)
					st, err := on[1].locker().Status(t.Context(), "job")
					require.NoError(t, err)
					require.Zero(t, st.Missed(time.Now()), "nothing is due from before the deploy")
					require.NoError(t, on[0].session.Close(t.Context()))
				}
				var want []string
				if c.want > 0 {
					want = append(want, midnight.Add(-c.want).Format(time.DateTime))
				}
				require.Equal(t, fmt.Sprint(want), fmt.Sprint(ticks[1:]))
			})
		})
	}
}

// A514: the lock of a dead run exists when a process begins with another schedule, and by the time the lock is gone that process has
// stored its own plan. What is missed is judged by the plan that it has found first.
func TestOnceAfterAnotherScheduleBehindALock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deploy time.Duration // from the midnight after the run
		want   []time.Duration
	}{
		"the former one was missed":     {23 * time.Hour, []time.Duration{22 * time.Hour}},
		"before the former one was due": {8 * time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				job := func(d *desk, at time.Duration, work schedlock.Func) (*schedlock.Locker, *schedlock.Job) {
					d.open(concurrency.SessionOptions{TTL: 5 * time.Minute})
					l := d.locker()
					j, err := l.Job("job", daily(at), work, schedlock.OnMisfire(schedlock.Once), schedlock.AtMost(100*time.Hour))
					require.NoError(t, err)
					j.Next(time.Now())
					return l, j
				}
				end, done := make(chan struct{}), make(chan struct{})
				finish := sync.OnceFunc(func() { close(end) })
				defer finish()
				_, former := job(on[0], 9*time.Hour, func(context.Context, *schedlock.Run) error { <-end; return nil })
				time.Sleep(time.Until(daily(9 * time.Hour).Next(time.Now().Add(time.Hour))))
				go func() { defer close(done); former.Run() }()
				midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
				time.Sleep(time.Until(midnight.Add(c.deploy)))
				on[0].client.Stall()
				var ticks []string
				l, _ := job(on[1], 22*time.Hour, func(_ context.Context, r *schedlock.Run) error {
					ticks = append(ticks, r.Tick().Format(time.DateTime))
					return nil
				})
				time.Sleep(10 * time.Second)
				st, err := l.Status(t.Context(), "job")
				require.NoError(t, err)
				require.True(t, st.Running, "its lock exists")
				require.Equal(t, daily(22*time.Hour).Next(time.Now()), st.Plan.Due.UTC(), "its own plan is stored")
				require.Empty(t, ticks)
				time.Sleep(20 * time.Minute)
				var want []string
				for _, at := range c.want {
					want = append(want, midnight.Add(at).Format(time.DateTime))
				}
				require.Equal(t, want, ticks)
				on[0].client.Heal()
				finish()
				came(t, done, "the end of the lost run")
			})
		})
	}
}
