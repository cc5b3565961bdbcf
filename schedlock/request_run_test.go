package schedlock_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// calls are the results of the calls of one process.
type calls chan answer

func (c calls) options() *schedlock.Options {
	return &schedlock.Options{Done: func(r schedlock.Result, err error) { c <- answer{r, err} }}
}

// serving is a process whose cron library has a job: each run is counted and waits for end.
func (f fixture) serving(name string, starts *atomic.Int64, end <-chan struct{}) (instance, calls) {
	f.T.Helper()
	done := make(calls, 100)
	in := f.instance(nil, done.options())
	f.serve(in, name, starts, end)
	return in, done
}

// serve gives a job to the cron library of a process.
func (f fixture) serve(in instance, name string, starts *atomic.Int64, end <-chan struct{}) {
	f.T.Helper()
	job, err := in.Job(name, schedlock.Periods(24*time.Hour), func(context.Context, *schedlock.Run) error {
		starts.Add(1)
		<-end
		return nil
	})
	require.NoError(f.T, err)
	job.Next(time.Now()) // as the library does
}

// A requested run is started by one of the processes, as a tick of its own.
func TestRequestRun(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	operator := f.instance(nil, nil)
	_, err := operator.RequestRun(ctx, "job", "")
	require.ErrorIs(t, err, schedlock.ErrUnknownJob)
	_, err = operator.RequestRun(ctx, "", "")
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	f.retired(1)

	var starts atomic.Int64
	_, first := f.serving("job", &starts, closedCh())
	_, second := f.serving("job", &starts, closedCh())
	_, other := f.serving("another job", &starts, closedCh())
	id, err := operator.RequestRun(ctx, "job", "the customer waits")
	require.NoError(t, err)
	// A process may call twice, and the call that is Claimed may end before the one that has Run.
	ran, called := 0, map[int]bool{}
	for ran == 0 || len(called) < 2 {
		var a answer
		select {
		case a = <-first:
			called[1] = true
		case a = <-second:
			called[2] = true
		case <-time.After(soon):
			require.FailNow(t, "no call has Run, or a process has not called", "%d, %v", ran, called)
		}
		require.NoError(t, a.err)
		if a.res.Outcome == schedlock.Ran {
			ran++
		} else {
			require.Equal(t, schedlock.Claimed, a.res.Outcome)
		}
	}
	require.Equal(t, 1, ran)
	require.EqualValues(t, 1, starts.Load())
	require.Empty(t, other)
	r, err := operator.Requested(ctx, "job", id)
	require.NoError(t, err)
	require.Equal(t, []any{schedlock.RunDone, id}, []any{r.State, r.Request})
	_, err = operator.Requested(ctx, "job", "another")
	require.ErrorIs(t, err, schedlock.ErrGone)
	_, err = operator.Requested(ctx, "job", "")
	require.ErrorIs(t, err, schedlock.ErrGone)
}

// outcome waits for a call with an outcome, and returns it. A process may call twice for one request.
func (c calls) outcome(t *testing.T, want schedlock.Outcome) schedlock.Result {
	t.Helper()
	for {
		a := got(t, c, "a call with the outcome "+want.String())
		require.NoError(t, a.err)
		if a.res.Outcome == want {
			return a.res
		}
	}
}

// A paused job is not started by a request, nor is one that runs.
func TestRequestRunSkipped(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	operator := f.instance(nil, nil)
	var starts atomic.Int64
	end := make(chan struct{})
	f.retired(1)
	_, done := f.serving("job", &starts, end)
	require.NoError(t, operator.Pause(ctx, "job", "moving house"))
	_, err := operator.RequestRun(ctx, "job", "")
	require.NoError(t, err)
	done.outcome(t, schedlock.Paused)
	require.NoError(t, operator.Resume(ctx, "job"))
	first, err := operator.RequestRun(ctx, "job", "")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return starts.Load() == 1 }, soon, 20*time.Millisecond)
	_, err = operator.RequestRun(ctx, "job", "")
	require.NoError(t, err)
	done.outcome(t, schedlock.StillRunning)
	close(end)
	require.True(t, operator.requested(t, first).Tick.Equal(done.outcome(t, schedlock.Ran).Tick))
}

// requested returns the record of a request's run.
func (in instance) requested(t *testing.T, id string) schedlock.Record {
	t.Helper()
	r, err := in.Requested(ctxT(t), "job", id)
	require.NoError(t, err)
	return r
}

// A process that received no events when the run was requested starts it when it can: here it is cut off,
// and another one has just started.
func TestRequestRunLate(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(f fixture, starts *atomic.Int64) (calls, func()){
		"cut off": func(f fixture, starts *atomic.Int64) (calls, func()) {
			in, done := f.serving("job", starts, closedCh())
			in.client.Cut()
			return done, func() { in.client.Heal() }
		},
		"just started": func(f fixture, starts *atomic.Int64) (calls, func()) {
			done := make(calls, 100)
			return done, func() {
				in := f.instance(nil, done.options())
				f.serve(in, "job", starts, closedCh())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			f.retired(1)
			var starts atomic.Int64
			done, begin := late(f, &starts)
			operator := f.instance(nil, nil)
			id, err := operator.RequestRun(ctxT(t), "job", "")
			require.NoError(t, err)
			begin()
			require.True(t, done.outcome(t, schedlock.Ran).Tick.Equal(operator.requested(t, id).Tick))
			require.EqualValues(t, 1, starts.Load())
		})
	}
}

// The answer to the request is lost, and the request is sent again: it is one run.
func TestRequestRunTwice(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	operator := f.instance(nil, nil)
	var starts atomic.Int64
	f.retired(1)
	_, done := f.serving("job", &starts, closedCh())
	inj := operator.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Match: func(_ string, msg any) bool {
		txn, ok := msg.(*etcdserverpb.TxnRequest)
		return ok && slices.ContainsFunc(txn.Success, func(op *etcdserverpb.RequestOp) bool {
			return strings.HasSuffix(string(op.GetRequestPut().GetKey()), "/run-request")
		})
	}})
	id, err := operator.RequestRun(ctx, "job", "")
	require.NoError(t, err)
	require.Positive(t, inj.Hits())
	require.True(t, done.outcome(t, schedlock.Ran).Tick.Equal(operator.requested(t, id).Tick))
	// A later request arrives after both copies of the first one.
	second, err := operator.RequestRun(ctx, "job", "")
	require.NoError(t, err)
	require.True(t, done.outcome(t, schedlock.Ran).Tick.Equal(operator.requested(t, second).Tick))
	require.EqualValues(t, 2, starts.Load())
}

// K11: the clock of the operator's machine has no part in the run that it asks for: the run starts at once, at the
// time of the process that starts it, and the ticks after it start.
func TestRequestRunFromAnotherClock(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for name, ahead := range map[string]time.Duration{"a minute ahead": 50 * time.Second, "far ahead": 26 * time.Hour, "behind": -2 * time.Minute, "far behind": -26 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			now := clock(at)
			o := now.options()
			done := make(calls, 100)
			o.Done = done.options().Done
			in := f.instance(nil, o)
			var starts atomic.Int64
			job, err := in.Job("job", schedlock.Periods(time.Second), counted(&starts))
			require.NoError(t, err)
			job.Next(at)
			run := func(want time.Time) {
				res, err := job.RunContext(ctxT(t))
				require.NoError(t, err)
				require.Equal(t, []any{schedlock.Ran, want}, []any{res.Outcome, res.Tick})
				done.outcome(t, schedlock.Ran)
			}
			run(at)
			now.set(at.Add(1500 * time.Millisecond))
			operator := f.instance(nil, clock(at.Add(ahead)).options())
			id, err := operator.RequestRun(ctxT(t), "job", "")
			require.NoError(t, err)
			require.Equal(t, at.Add(1500*time.Millisecond), done.outcome(t, schedlock.Ran).Tick)
			require.Equal(t, at.Add(1500*time.Millisecond), operator.requested(t, id).Tick)
			now.set(at.Add(2 * time.Second))
			run(at.Add(2 * time.Second))
			require.EqualValues(t, 3, starts.Load())
		})
	}
}

// Several processes start what is asked for once, however many requests come after each other.
func TestRequestRunByOneOfMany(t *testing.T) {
	t.Parallel()
	f := shared(t)
	operator := f.instance(nil, nil)
	var starts atomic.Int64
	f.retired(1)
	var all []calls
	for range 4 {
		_, done := f.serving("job", &starts, closedCh())
		all = append(all, done)
	}
	for n := range 5 {
		id, err := operator.RequestRun(ctxT(t), "job", "")
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			r, err := operator.Requested(ctxT(t), "job", id)
			return err == nil && r.State == schedlock.RunDone
		}, soon, 20*time.Millisecond)
		for _, done := range all {
			require.NoError(t, got(t, done, "each process has looked at the request").err)
		}
		require.EqualValues(t, n+1, starts.Load())
	}
}

// What keeps a requested run from starting is in the job's status, as a text.
func TestObstacle(t *testing.T) {
	t.Parallel()
	for want, st := range map[string]schedlock.Status{
		"":                                  {},
		"it is paused by ops: moving house": {Paused: &schedlock.Pause{By: "ops", Reason: "moving house"}, Running: true},
		"it is paused by an operator":       {Paused: &schedlock.Pause{}},
		"a run is active":                   {Running: true},
		"it cools down (AtLeast)":           {CoolingDown: true},
		"a run by web-1 is active, since " + "2026-03-02T09:00:00Z": {Running: true, Last: &schedlock.Record{Owner: "web-1", State: schedlock.RunActive, Start: time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)}},
	} {
		require.Equal(t, want, st.Obstacle())
	}
}

// A571: of a job that a live process has, which could not start it when the request came, neither console nor command says that no process has it:
// an operator restarted healthy services.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	for want, st := range map[string]schedlock.Status{
		"a run is active":                      {Running: true, Plan: &schedlock.Plan{Live: true}},
		"a process has it, and could not":      {Plan: &schedlock.Plan{Live: true}},
		"a process has it,":                    {Plan: &schedlock.Plan{Live: true, Called: true}},
		"calls start it":                       {Plan: &schedlock.Plan{Called: true}},
		"no live process has it by Locker.Job": {Plan: &schedlock.Plan{}},
		"no live process has it":               {},
	} {
		require.True(t, strings.HasPrefix(st.Unanswered(), want), st.Unanswered())
	}
}
