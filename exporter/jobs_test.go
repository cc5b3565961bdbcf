package exporter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

func nothing(context.Context, *schedlock.Run) error { return nil }

// crash ends a session as if its process had died: nothing more is sent.
func (f fixture) crash(s *concurrency.Session, c *embedtest.Client) {
	f.T.Helper()
	lease := s.Lease()
	require.NoError(f.T, c.Close())
	// The client's end may have ended the lease already.
	if err := f.ExpireLease(ctxT(f.T), lease); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		require.NoError(f.T, err)
	}
}

// The metrics of a job follow its History: runs that ended well, failed, are active, and were lost.
func TestJob(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	l, err := schedlock.New(s, nil)
	require.NoError(t, err)
	e := f.export(s, nil)
	const job = "internal/reports.Daily"
	job1 := queue("job", job)
	tick := func(n int) schedlock.CallOption {
		return schedlock.Tick(time.Now().Add(-time.Hour).Truncate(time.Minute).Add(time.Duration(n) * time.Second))
	}
	again := schedlock.Retries(1)
	_, err = l.Do(ctx, job, nothing, tick(1), again)
	require.NoError(t, err)
	done, err := l.History(ctx, job)
	require.NoError(t, err)
	want := map[string]float64{
		"job_last_success_timestamp_seconds": float64(done[0].End.UnixMilli()) / 1000, "job_last_run_timestamp_seconds": float64(done[0].Start.UnixMilli()) / 1000,
		"job_running": 0, "job_paused": 0, "job_lost_runs": 0, "job_failed_runs": 0,
	}
	got := e.shows(of(job1, want))
	require.NotContains(t, got, "job_next_fire_timestamp_seconds{"+job1+"}", "its period is not known")

	_, err = l.Do(ctx, job, func(context.Context, *schedlock.Run) error { return errors.New("no") }, tick(2), again)
	require.Error(t, err)
	failed, err := l.History(ctx, job)
	require.NoError(t, err)
	want["job_failed_runs"], want["job_last_run_timestamp_seconds"] = 1, float64(failed[0].Start.UnixMilli())/1000
	want["job_last_failure_timestamp_seconds"] = float64(failed[0].End.UnixMilli()) / 1000
	require.NotContains(t, e.shows(of(job1, want)), "job_last_lost_timestamp_seconds{"+job1+"}")

	o, c := f.Session(idle())
	other, err := schedlock.New(o, nil)
	require.NoError(t, err)
	started := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := other.Do(ctx, job, func(ctx context.Context, _ *schedlock.Run) error { close(started); <-ctx.Done(); return nil }, tick(3), again)
		ended <- err
	}()
	closed(t, started, "the run starts")
	want["job_running"] = 1
	active, err := l.History(ctx, job)
	require.NoError(t, err)
	want["job_last_run_timestamp_seconds"] = float64(active[0].Start.UnixMilli()) / 1000
	e.shows(of(job1, want))
	f.crash(o, c)
	want["job_running"], want["job_lost_runs"] = 0, 1
	want["job_last_lost_timestamp_seconds"], want["job_last_failure_timestamp_seconds"] = want["job_last_run_timestamp_seconds"], want["job_last_run_timestamp_seconds"]
	e.shows(of(job1, want))

	// The run is tried again: the attempt was lost all the same.
	_, err = l.Do(ctx, job, nothing, tick(3), again)
	require.NoError(t, err)
	repeated, err := l.History(ctx, job)
	require.NoError(t, err)
	require.Equal(t, []any{2, schedlock.RunDone}, []any{repeated[0].Attempt, repeated[0].State})
	want["job_last_success_timestamp_seconds"], want["job_last_failure_timestamp_seconds"] = float64(repeated[0].End.UnixMilli())/1000, float64(failed[0].End.UnixMilli())/1000
	want["job_last_run_timestamp_seconds"] = float64(repeated[0].Start.UnixMilli()) / 1000
	e.shows(of(job1, want))
	require.NoError(t, l.Pause(ctx, job, "why"))
	want["job_paused"] = 1
	e.shows(of(job1, want))
	f.export(s, nil).shows(of(job1, want))
	require.NoError(t, l.Resume(ctx, job))
	want["job_paused"] = 0
	e.shows(of(job1, want))
}

// The next fire time of a job is known while a process runs it by a period: it is the one after the latest
// record, and so it passes if no process starts it.
func TestNextFireTime(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	watcher, _ := f.Session(idle())
	l, err := schedlock.New(s, nil)
	require.NoError(t, err)
	e := f.export(watcher, nil)
	_, err = l.Do(ctx, "job", nothing, schedlock.Every(time.Hour))
	require.NoError(t, err)
	h, err := l.History(ctx, "job")
	require.NoError(t, err)
	const name = `job_next_fire_timestamp_seconds{kind="job",name="job"}`
	e.shows(map[string]float64{name: float64(h[0].Tick.Add(time.Hour).Unix())})
	require.NoError(t, s.Close(ctx))
	require.Eventually(t, func() bool { _, there := e.series()[name]; return !there }, soon, look, "no live process knows the period")
	require.Contains(t, e.series(), `job_last_success_timestamp_seconds{kind="job",name="job"}`)
}

// daily fires at midnight, in UTC: a schedule without a period.
type daily struct{}

func (daily) Next(t time.Time) time.Time {
	return t.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).In(t.Location())
}

// K14: a job with a schedule of times of day has a next fire time as soon as a process has it, and before it has run; it
// has none any more when no process has it.
func TestNextFireTimeOfASchedule(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	watcher, _ := f.Session(idle())
	l, err := schedlock.New(s, nil)
	require.NoError(t, err)
	e := f.export(watcher, nil)
	job, err := l.Job("job", daily{}, nothing)
	require.NoError(t, err)
	next := job.Next(time.Now())
	const name = `job_next_fire_timestamp_seconds{kind="job",name="job"}`
	e.shows(map[string]float64{name: float64(next.Unix()), `job_paused{kind="job",name="job"}`: 0})
	require.NoError(t, s.Close(ctxT(t)))
	require.Eventually(t, func() bool { _, there := e.series()[name]; return !there }, soon, look, "no live process has it")
	require.Contains(t, e.series(), `job_paused{kind="job",name="job"}`)
}

// A276: that no process has a job any more is published, also while it is paused and when it is resumed.
func TestProcessesOfAJob(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	l, err := schedlock.New(s, nil)
	require.NoError(t, err)
	operator, err := schedlock.New(other, nil)
	require.NoError(t, err)
	e := f.export(other, nil)
	job, err := l.Job("job", daily{}, nothing)
	require.NoError(t, err)
	job.Next(time.Now())
	const name, paused = `job_processes{kind="job",name="job"}`, `job_paused{kind="job",name="job"}`
	e.shows(map[string]float64{name: 1, paused: 0})
	require.NoError(t, operator.Pause(ctxT(t), "job", "moving house"))
	e.shows(map[string]float64{name: 1, paused: 1})
	require.NoError(t, s.Close(ctxT(t)))
	e.shows(map[string]float64{name: 0, paused: 1})
	require.NoError(t, operator.Resume(ctxT(t), "job"))
	e.shows(map[string]float64{name: 0, paused: 0})
}

// K25: a job that is run by calls, of which no process lives between two, has a next fire time, later by as much as calls may be.
func TestNextFireTimeOfCalls(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	watcher, _ := f.Session(idle())
	l, err := schedlock.New(s, nil)
	require.NoError(t, err)
	e := f.export(watcher, nil)
	now := time.Now()
	_, err = l.Do(ctxT(t), "job", nothing, schedlock.Tick(now), schedlock.Planned(daily{}, time.Hour))
	require.NoError(t, err)
	require.NoError(t, s.Close(ctxT(t)))
	e.shows(map[string]float64{`job_next_fire_timestamp_seconds{kind="job",name="job"}`: float64(daily{}.Next(now).Add(time.Hour).Unix())})
}

// K28: a Resume by an operator whose clock is slow, when no process of the job is alive, is of the time at which it arrives
// here: no fire time from before it is due.
func TestResumedBySlowClock(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(idle())
	watcher, _ := f.Session(idle())
	l, err := schedlock.New(s, nil)
	require.NoError(t, err)
	e := f.export(watcher, nil)
	now := time.Now()
	const day = 24 * time.Hour
	_, err = l.Do(ctxT(t), "job", nothing, schedlock.Tick(now.Add(-day*3/2)), schedlock.Planned(daily{}, 0))
	require.NoError(t, err)
	require.NoError(t, s.Close(ctxT(t)))
	const name = `job_next_fire_timestamp_seconds{kind="job",name="job"}`
	e.shows(map[string]float64{name: float64(daily{}.Next(now.Add(-day * 3 / 2)).Unix())})
	operator, err := schedlock.New(other, &schedlock.Options{Now: func() time.Time { return time.Now().Add(-2 * day) }})
	require.NoError(t, err)
	require.NoError(t, operator.Pause(ctxT(t), "job", "moving house"))
	require.NoError(t, operator.Resume(ctxT(t), "job"))
	e.shows(map[string]float64{name: float64(daily{}.Next(time.Now()).Unix())})
}

// The latest success is known after its record was removed, and through another list.
func TestLastSuccessOutlivesItsRecord(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	l, err := schedlock.New(s, &schedlock.Options{Keep: 1})
	require.NoError(t, err)
	_, err = l.Do(ctx, "job", nothing, schedlock.Tick(time.Now().Add(-time.Hour)))
	require.NoError(t, err)
	h, err := l.History(ctx, "job")
	require.NoError(t, err)
	want := map[string]float64{`job_last_success_timestamp_seconds{kind="job",name="job"}`: float64(h[0].End.UnixMilli()) / 1000}
	e := f.export(s, brief())
	e.shows(want)
	_, err = l.Do(ctx, "job", func(context.Context, *schedlock.Run) error { return errors.New("no") }, schedlock.Tick(time.Now().Add(-time.Minute)))
	require.Error(t, err)
	want[`job_failed_runs{kind="job",name="job"}`] = 1
	e.shows(want)
	h, err = l.History(ctx, "job")
	require.NoError(t, err)
	require.Len(t, h, 1)
	lists := e.series()["exporter_lists_total{}"]
	require.Eventually(t, func() bool { return e.series()["exporter_lists_total{}"] > lists }, soon, look)
	e.shows(want)
}
