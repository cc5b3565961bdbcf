package schedlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// ofNine stores the plan of the schedule that a Job of the tests has later: without one, no tick from before that was missed.
var ofNine = schedlock.Planned(nine{}, 0)

// begins lets a process begin with the job, at a time, with Once. Retries has it report that it
// has found nothing to catch up with: its result is for the tick that was run before.
func (f fixture) begins(now time.Time, opts ...schedlock.JobOption) (instance, *atomic.Int64, <-chan schedlock.Result) {
	f.T.Helper()
	o := clock(now).options()
	reported := make(chan schedlock.Result, 10)
	o.Done = func(r schedlock.Result, _ error) { reported <- r }
	in := f.instance(nil, o)
	var starts atomic.Int64
	job, err := in.Job("job", nine{}, counted(&starts), append(opts, schedlock.OnMisfire(schedlock.Once), schedlock.Retries(1))...)
	require.NoError(f.T, err)
	job.Next(now)
	return in, &starts, reported
}

// OnMisfire(Once) starts a tick that was missed since no process was alive, and none that was left
// out because the job was paused, or because a run was active.
func TestOnceAfterLeftOutTicks(t *testing.T) {
	t.Parallel()
	saturday := friday.AddDate(0, 0, 1)
	for name, tt := range map[string]struct {
		ends            time.Time // of the run of friday
		paused, resumed time.Time
		begins          time.Time
		days            bool
		want            time.Time // or zero for none
	}{
		"no process was there":             {ends: friday, begins: saturday.Add(time.Hour), want: saturday},
		"no process was there after a run": {ends: saturday.Add(-time.Hour), begins: saturday.Add(time.Hour), want: saturday},
		"still running":                    {ends: saturday.Add(time.Minute), begins: saturday.Add(time.Hour)},
		"still running, and then missed":   {ends: saturday.Add(time.Minute), begins: saturday.Add(25 * time.Hour), want: saturday.AddDate(0, 0, 1)},
		"AtLeast has not passed":           {ends: friday, begins: saturday.Add(time.Hour), days: true},
		"paused":                           {ends: friday, paused: friday.Add(time.Hour), resumed: saturday.Add(time.Minute), begins: saturday.Add(time.Hour)},
		"paused again":                     {ends: friday, paused: friday.Add(-time.Hour), resumed: saturday, begins: saturday.Add(time.Hour)},
		"paused, and then missed":          {ends: friday, paused: friday.Add(time.Hour), resumed: saturday.Add(time.Minute), begins: saturday.Add(25 * time.Hour), want: saturday.AddDate(0, 0, 1)},
		"paused only before it was due":    {ends: friday, paused: friday.Add(time.Hour), resumed: friday.Add(2 * time.Hour), begins: saturday.Add(time.Hour), want: saturday},
		"nothing but the run that it had":  {ends: friday, begins: saturday.Add(-time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			h := clock(friday)
			a := f.instance(nil, h.options())
			least, most := schedlock.AtLeast(0), schedlock.AtMost(time.Hour)
			if tt.days {
				least, most = schedlock.AtLeast(48*time.Hour), schedlock.AtMost(100*time.Hour)
			}
			_, err := a.Do(ctx, "job", func(context.Context, *schedlock.Run) error { h.set(tt.ends); return nil },
				schedlock.Tick(friday), ofNine, schedlock.Retries(1), least, most)
			require.NoError(t, err)
			if !tt.paused.IsZero() {
				h.set(tt.paused)
				require.NoError(t, a.Pause(ctx, "job", "moving house"))
				h.set(tt.resumed)
				require.NoError(t, a.Resume(ctx, "job"))
			}
			_, starts, reported := f.begins(tt.begins, least, most)
			res := got(t, reported, "it has looked for what was missed")
			if tt.want.IsZero() {
				require.Equal(t, friday, res.Tick)
				require.Zero(t, starts.Load())
			} else {
				require.Equal(t, []any{schedlock.Ran, tt.want}, []any{res.Outcome, res.Tick})
			}
		})
	}
}

// K12: which ticks a pause has left out does not depend on the clock of the operator who has ended it: if the job
// has started since, etcd's order decides; if processes live, their clocks count within a minute.
func TestResumeFromAnotherClock(t *testing.T) {
	t.Parallel()
	saturday := friday.AddDate(0, 0, 1)
	for name, tt := range map[string]struct {
		alive, claimed, request bool
		operator                time.Duration
		want                    bool // the tick of saturday was missed
	}{
		"right":                             {alive: true, want: true},
		"a day ahead":                       {alive: true, operator: 26 * time.Hour, want: true},
		"a day ahead, and a claim since":    {claimed: true, operator: 26 * time.Hour, want: true},
		"a day ahead, and nothing is known": {operator: 26 * time.Hour},
		"a request from a day ahead":        {request: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			h := clock(friday)
			a := f.instance(nil, h.options())
			run := func(tick time.Time) {
				_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick), ofNine, schedlock.Retries(1))
				require.NoError(t, err)
			}
			run(friday)
			h.set(friday.Add(time.Hour))
			operator, lines := f.logged(nil, clock(h.now().Add(tt.operator)).options())
			if tt.alive {
				f.instance(nil, h.options())
				require.Eventually(t, func() bool { return len(operator.Clocks()) == 2 }, soon, 20*time.Millisecond)
			}
			if !tt.alive {
				require.NoError(t, a.sess.Close(ctx))
			}
			require.NoError(t, operator.Pause(ctx, "job", "moving house"))
			require.NoError(t, operator.Resume(ctx, "job"))
			if tt.request {
				require.NoError(t, operator.sess.Close(ctx))
				_, err := f.instance(nil, clock(saturday.Add(2*time.Hour)).options()).RequestRun(ctx, "job", "")
				require.NoError(t, err)
				expire(ctx, t, f, operator)
			}
			if tt.claimed {
				h.set(friday.Add(2 * time.Hour))
				b := f.instance(nil, h.options())
				_, err := b.Do(ctx, "job", nothing, schedlock.Tick(friday.Add(2*time.Hour)), ofNine, schedlock.Retries(1))
				require.NoError(t, err)
			}
			require.Equal(t, tt.alive && tt.operator != 0, lines.FilterMessageSnippet("the clock of this process differs").Len() > 0)
			_, _, reported := f.begins(saturday.Add(time.Hour))
			res := got(t, reported, "it has looked for what was missed")
			require.Equal(t, tt.want, res.Outcome == schedlock.Ran && res.Tick.Equal(saturday), "%v", res)
		})
	}
}

// K31: a Resume by an operator whose clock is days behind, when no process is alive, does not come before the stamp of the plan:
// no tick from before that was missed, since the job was paused.
func TestResumeAfterTheStampOfAPlan(t *testing.T) {
	t.Parallel()
	saturday := friday.AddDate(0, 0, 1)
	for name, x := range map[string]struct {
		operator time.Duration
		begins   time.Time
		missed   bool
	}{
		"behind":                    {-72 * time.Hour, saturday.Add(time.Hour), false},
		"behind, and a tick missed": {-72 * time.Hour, saturday.Add(25 * time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			h := clock(friday.Add(-time.Hour))
			in := f.instance(nil, schedlock.Settled(h.options()))
			job, err := in.Job("job", nine{}, nothing, schedlock.OnMisfire(schedlock.Once), schedlock.Retries(1))
			require.NoError(t, err)
			_, err = in.Do(ctx, "job", nothing, schedlock.Tick(friday.AddDate(0, 0, -1)), schedlock.Retries(1))
			require.NoError(t, err)
			job.Next(h.now())
			in.planned(t, friday)
			require.NoError(t, in.Pause(ctx, "job", "moving house"))
			h.set(saturday.Add(time.Minute))
			in.begin(t, "wakes-it")
			in.waitPlan(t, "job", func(p record.Plan, _ bool) bool { return p.AliveMS == h.now().UnixMilli() })
			require.NoError(t, in.sess.Close(ctx))
			operator := f.instance(nil, clock(h.now().Add(x.operator)).options())
			require.NoError(t, operator.Resume(ctx, "job"))
			require.NoError(t, operator.sess.Close(ctx))
			_, _, reported := f.begins(x.begins)
			res := got(t, reported, "it has looked for what was missed")
			require.Equal(t, x.missed, res.Outcome == schedlock.Ran, "%v", res)
		})
	}
}

// expire removes the request for a run, as a minute does.
func expire(ctx context.Context, t *testing.T, f fixture, in instance) {
	t.Helper()
	_, err := f.Client().Delete(ctx, in.sess.NamespacePrefix()+"job/job/run-request")
	require.NoError(t, err)
}

// The fleet comes back while the lock of a run still exists, as within the TTL of one whose
// process has died. If the run was lost, the latest tick since was missed and starts; if it
// is active and ends, it was not.
func TestOnceBehindALock(t *testing.T) {
	t.Parallel()
	saturday := friday.AddDate(0, 0, 1)
	standsBy := func(f fixture) (*atomic.Int64, <-chan schedlock.Result) {
		b, starts, reported := f.begins(saturday.Add(time.Hour))
		require.Eventually(f.T, func() bool { return b.client.Requests()["Txn"] > 0 }, soon, 20*time.Millisecond, "it looks")
		select {
		case r := <-reported:
			f.T.Fatalf("it does not wait: %+v", r)
		case <-time.After(100 * time.Millisecond):
		}
		return starts, reported
	}
	t.Run("of a dead run", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		var starts *atomic.Int64
		var reported <-chan schedlock.Result
		f.loseRun(ctxT(t), friday, func() { starts, reported = standsBy(f) })
		res := got(t, reported, "what was missed")
		require.Equal(t, []any{schedlock.Ran, saturday}, []any{res.Outcome, res.Tick})
		require.EqualValues(t, 1, starts.Load())
	})
	t.Run("of a run that ends", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		h := clock(friday)
		end := make(chan struct{})
		started, done := do(ctxT(t), f.instance(nil, h.options()).Locker, "job", end, schedlock.Tick(friday), ofNine, schedlock.Retries(1))
		got(t, started, "it starts")
		h.set(saturday.Add(2 * time.Hour))
		starts, reported := standsBy(f)
		close(end)
		require.NoError(t, got(t, done, "it ends").err)
		require.Equal(t, friday, got(t, reported, "nothing was missed").Tick)
		require.Zero(t, starts.Load())
	})
}

// A call that a process makes itself, to catch up or because a run was requested, has no caller whose ctx could end: a
// Close that cannot wait ends it by ErrClosed, while its claim is on the way and while its function runs.
func TestCloseEndsOwnCalls(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(f fixture, job *schedlock.Job){
		"missed": func(_ fixture, job *schedlock.Job) { job.Next(time.Now()) },
		"requested": func(f fixture, job *schedlock.Job) {
			job.Next(time.Now())
			operator := f.instance(nil, nil)
			require.Eventually(f.T, func() bool {
				_, err := operator.RequestRun(ctxT(f.T), "job", "")
				return err == nil
			}, soon, 20*time.Millisecond, "etcd knows the job")
		},
	} {
		for _, running := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, running %v", name, running), func(t *testing.T) {
				t.Parallel()
				f, ctx := shared(t), ctxT(t)
				if name == "missed" {
					_, err := f.instance(nil, nil).Do(ctx, "job", nothing, schedlock.Tick(anHourAgo), schedlock.Planned(grid(time.Minute), 0))
					require.NoError(t, err)
				}
				reported := make(chan error, 10)
				b := f.instance(nil, &schedlock.Options{Done: func(_ schedlock.Result, err error) { reported <- err }})
				started, causes := make(chan struct{}), make(chan error, 1)
				job, err := b.Job("job", grid(time.Minute), func(ctx context.Context, _ *schedlock.Run) error {
					close(started)
					<-ctx.Done()
					causes <- context.Cause(ctx)
					return context.Cause(ctx)
				}, schedlock.OnMisfire(schedlock.Once))
				require.NoError(t, err)
				inj := b.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldRequest, Times: -1})
				if running {
					inj.Remove()
				}
				begin(f, job)
				if running {
					got(t, started, "it starts")
				} else {
					require.NoError(t, inj.WaitHit(ctx))
				}
				dead, cancel := context.WithCancel(ctx)
				cancel()
				require.Error(t, b.sess.Close(dead))
				err = got(t, reported, "Options.Done is called")
				require.ErrorIs(t, err, schedlock.ErrClosed)
				require.NotErrorIs(t, err, context.Canceled)
				if running {
					require.ErrorIs(t, <-causes, schedlock.ErrClosed)
				}
			})
		}
	}
}
