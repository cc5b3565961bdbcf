package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/schedlock"
)

// calledFunc is the key of the function of one call, in the context of a Job's call.
type calledFunc struct{}

// call calls Locker.Do, or the Job that the process has.
func (l *locker) call(ctx context.Context, o jobCall, fn schedlock.Func, opts []schedlock.CallOption) (schedlock.Result, error) {
	if !o.planned {
		return l.Do(ctx, o.name, fn, opts...)
	}
	job, err := l.job(o.scheduled)
	if err != nil {
		return schedlock.Result{}, err
	}
	ctx = context.WithValue(ctx, calledFunc{}, fn)
	if o.trigger {
		return job.Trigger(ctx)
	}
	return job.RunContext(ctx)
}

// job returns the Job of that name, of which a locker has one. It has no attempts after the first and no missed ticks are run, so
// the library calls its function in no other call than ours.
func (l *locker) job(j scheduled) (*schedlock.Job, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if job := l.planned[j.name]; job != nil {
		return job, nil
	}
	job, err := l.Job(j.name, schedlock.Periods(j.period), func(ctx context.Context, r *schedlock.Run) error {
		fn, ok := ctx.Value(calledFunc{}).(schedlock.Func)
		if !ok {
			return errors.New("the function of a planned job was called, and no call is on its way")
		}
		return fn(ctx, r)
	}, schedlock.AtMost(j.atMost), schedlock.LateBy(j.lateBy))
	if err != nil {
		return nil, err
	}
	job.Next(l.now()) // the process has the job from now on, and writes its plan
	l.planned[j.name] = job
	return job, nil
}

// hasPlan waits for the plan of a job that has one, which a process may write in the background.
func (l *locker) hasPlan(ctx context.Context, j scheduled) error {
	for j.planned || j.called {
		st, err := l.Status(ctx, j.name)
		if err != nil {
			return fmt.Errorf("status of job %s: %w", j.name, err)
		}
		if st.Plan != nil && st.Plan.Called == j.called && len(st.Plan.Next) > 0 {
			return nil
		}
		if err := Sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("job %s has no plan: %w", j.name, err)
		}
	}
	return nil
}
