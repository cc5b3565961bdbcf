package schedlock_test

import (
	"context"
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
	tick, err := operator.RequestRun(ctx, "job", "the customer waits")
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
		require.True(t, tick.Equal(a.res.Tick), "%v %v", tick, a.res.Tick)
		if a.res.Outcome == schedlock.Ran {
			ran++
		} else {
			require.Equal(t, schedlock.Claimed, a.res.Outcome)
		}
	}
	require.Equal(t, 1, ran)
	require.EqualValues(t, 1, starts.Load())
	require.Empty(t, other)
	r, err := operator.Get(ctx, "job", tick)
	require.NoError(t, err)
	require.Equal(t, schedlock.RunDone, r.State)
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
	require.Eventually(t, func() bool { return starts.Load() == 1 }, soon, 5*time.Millisecond)
	_, err = operator.RequestRun(ctx, "job", "")
	require.NoError(t, err)
	done.outcome(t, schedlock.StillRunning)
	close(end)
	require.True(t, first.Equal(done.outcome(t, schedlock.Ran).Tick))
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
			tick, err := f.instance(nil, nil).RequestRun(ctxT(t), "job", "")
			require.NoError(t, err)
			begin()
			require.True(t, tick.Equal(done.outcome(t, schedlock.Ran).Tick))
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
	inj := operator.client.Inject(embedtest.Fault{Method: "Put", Do: embedtest.DropResponse, Match: func(_ string, msg any) bool {
		put, ok := msg.(*etcdserverpb.PutRequest)
		return ok && strings.HasSuffix(string(put.Key), "/requested")
	}})
	tick, err := operator.RequestRun(ctx, "job", "")
	require.NoError(t, err)
	require.Positive(t, inj.Hits())
	require.True(t, tick.Equal(done.outcome(t, schedlock.Ran).Tick))
	// A later request arrives after both copies of the first one.
	second, err := operator.RequestRun(ctx, "job", "")
	require.NoError(t, err)
	require.True(t, second.Equal(done.outcome(t, schedlock.Ran).Tick))
	require.EqualValues(t, 2, starts.Load())
}
