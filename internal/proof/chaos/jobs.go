package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// scheduled is one job of the workload.
type scheduled struct {
	name    string
	period  time.Duration // between ticks
	every   bool          // ticks are given as a period
	untimed bool          // there are none: each call is its own
	atMost  time.Duration
	atLeast time.Duration
	lateBy  time.Duration
	retries int
	failed  int // attempts after a failure, each a pause after it
	pause   time.Duration
	apart   time.Duration // called as `jobs run --every` is: the tick is the time of the call, so far from the one before
	longest time.Duration // that its function takes
	planned bool          // it is a Job with a schedule, which has a plan
	called  bool          // its calls store a plan: option Planned
}

func (j scheduled) gate() string { return "job/" + j.name }

// options are those with which a call for a tick is made, and their form in a history.
func (j scheduled) options(tick time.Time) (opts []schedlock.CallOption, attr map[string]string) {
	attr = map[string]string{"retries": fmt.Sprint(j.retries)}
	opts = []schedlock.CallOption{schedlock.AtMost(j.atMost), schedlock.Retries(j.retries)}
	switch {
	case j.every:
		opts = append(opts, schedlock.Every(j.period))
	case !j.untimed:
		opts = append(opts, schedlock.Tick(tick))
	}
	if j.atLeast > 0 {
		attr["atleast"] = j.atLeast.String()
		opts = append(opts, schedlock.AtLeast(j.atLeast))
	}
	if j.failed > 0 {
		attr["retryfailed"], attr["pause"] = fmt.Sprint(j.failed), j.pause.String()
		opts = append(opts, schedlock.RetryFailed(j.failed, j.pause))
	}
	if j.apart > 0 {
		attr["apart"] = j.apart.String()
		opts = append(opts, schedlock.Apart(j.apart))
	}
	if j.called {
		opts = append(opts, schedlock.Planned(schedlock.Periods(j.period), j.period))
	}
	if j.lateBy > 0 {
		attr["lateby"] = j.lateBy.String()
		opts = append(opts, schedlock.LateBy(j.lateBy))
	}
	return opts, attr
}

// Jobs is the Workload for schedlock. Processes whose clocks differ call for the same
// ticks; each job protects a register that checks tokens and one in etcd.
type Jobs struct {
	all       []scheduled
	registers map[string]Register

	mu      sync.Mutex
	lockers map[*Process]*locker
}

type locker struct {
	*schedlock.Locker
	sess *concurrency.Session
	now  func() time.Time

	mu      sync.Mutex
	planned map[string]*schedlock.Job
}

// NewJobs returns jobs of several kinds, with registers in memory.
func NewJobs() *Jobs { return NewJobsOn(func(string) Register { return NewRegister() }) }

// NewJobsOn returns jobs of several kinds, which protect those registers.
func NewJobsOn(register func(name string) Register) *Jobs {
	const ms = time.Millisecond
	s := &Jobs{registers: map[string]Register{}, lockers: map[*Process]*locker{}, all: []scheduled{
		{name: "quick", period: 200 * ms, atMost: time.Hour}, // takes no time
		{name: "steady", period: 500 * ms, atMost: time.Hour, retries: 1, longest: 200 * ms},
		{name: "long", period: 300 * ms, atMost: time.Second, retries: 1, longest: 1500 * ms}, // longer than its interval
		{name: "spaced", period: 300 * ms, atMost: time.Minute, atLeast: 700 * ms, longest: 50 * ms},
		{name: "punctual", period: 400 * ms, atMost: time.Minute, lateBy: 150 * ms, longest: 100 * ms},
		{name: "polled", period: 250 * ms, every: true, atMost: time.Minute, retries: 1, longest: 100 * ms},
		{name: "failing", period: 400 * ms, atMost: time.Minute, retries: 1, failed: 2, pause: 50 * ms, longest: 50 * ms},
		{name: "flaky", period: 500 * ms, every: true, atMost: 200 * ms, failed: 3, pause: 20 * ms, longest: 60 * ms},
		{name: "nightly", period: 600 * ms, apart: 450 * ms, atMost: time.Minute, retries: 1, longest: 200 * ms},
		{name: "planned", period: 500 * ms, planned: true, atMost: time.Minute, lateBy: 400 * ms, longest: 100 * ms},
		{name: "from-cron", period: 400 * ms, called: true, atMost: time.Minute, retries: 1, longest: 100 * ms},
		{name: "by-hand", period: 250 * ms, untimed: true, atMost: time.Minute, longest: 60 * ms},
	}}
	for n := range 5 { // so that there is a run to be lost at any time, and time for another attempt
		s.all = append(s.all, scheduled{name: fmt.Sprintf("slow-%d", n), period: 8 * time.Second, atMost: time.Hour, retries: 2, longest: 6 * time.Second})
	}
	for _, j := range s.all {
		s.registers[j.name] = register(j.name)
	}
	return s
}

// Name implements Workload.
func (*Jobs) Name() string { return "jobs" }

// Queues implements Workload. A job has no queue.
func (*Jobs) Queues(keyspace.Space) []keyspace.Queue { return nil }

// mostApart is by how much the clocks of most processes differ from the machine's. Some
// are wrong by more than a locker allows for.
const (
	mostApart = 300 * time.Millisecond
	wrong     = 2 * time.Hour
)

// clock returns the clock of a process.
func clock(p *Process) func() time.Time {
	r := p.Env.Seed.Stream("clock " + p.Name)
	apart := time.Duration(r.Int64N(int64(2*mostApart))) - mostApart
	if r.IntN(15) == 0 {
		apart += wrong
	}
	return func() time.Time { return time.Now().Add(apart) }
}

// on returns the locker of a process's session.
func (s *Jobs) on(p *Process) (*locker, error) {
	sess, err := p.Kit()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.lockers[p]; l != nil && l.sess == sess {
		return l, nil
	}
	l := &locker{sess: sess, now: clock(p), planned: map[string]*schedlock.Job{}}
	// Few records are kept, so that ticks are closed all the time.
	if l.Locker, err = schedlock.New(sess, &schedlock.Options{Keep: 3, Now: l.now}); err != nil {
		return nil, err
	}
	s.lockers[p] = l
	return l, nil
}

// Plan implements Workload.
func (s *Jobs) Plan(r *rand.Rand) Operation {
	j := s.all[r.IntN(len(s.all))]
	bound := time.Duration(100+r.IntN(3000)) * time.Millisecond
	switch n := r.IntN(100); {
	case n < 1:
		return s.with("job.pause", j, bound, func(ctx context.Context, _ *Process, l *locker) error { return l.Pause(ctx, j.name, "chaos") })
	case n < 8:
		return s.with("job.resume", j, bound, func(ctx context.Context, _ *Process, l *locker) error { return l.Resume(ctx, j.name) })
	case n < 10:
		return s.with(history.JobUnlock, j, bound, func(ctx context.Context, _ *Process, l *locker) error { return l.Unlock(ctx, j.name, "chaos") })
	case n < 15:
		return s.with("job.history", j, bound, func(ctx context.Context, p *Process, l *locker) error { return s.read(ctx, p, l, j) })
	case n < 22:
		return s.with("job.clock", j, bound, publishTime)
	}
	o := drawJobCall(r, j)
	return Operation{Name: history.JobDo + " " + j.name, Do: func(ctx context.Context, p *Process) error {
		l, err := s.on(p)
		if err != nil {
			return err
		}
		_, err = o.run(ctx, p, l, s.registers[j.name])
		return err
	}}
}

// with is an operation that takes no longer than bound.
func (s *Jobs) with(name string, j scheduled, bound time.Duration, do func(context.Context, *Process, *locker) error) Operation {
	return Operation{Name: name + " " + j.name, Do: func(ctx context.Context, p *Process) error {
		l, err := s.on(p)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		return p.call(ctx, history.Event{Name: name, Gate: j.gate()}, func() error { return do(ctx, p, l) })
	}}
}

// read reads the history of a job. Records come latest first, one for each tick.
func (s *Jobs) read(ctx context.Context, p *Process, l *locker, j scheduled) error {
	records, err := l.History(ctx, j.name)
	if err != nil {
		return err
	}
	for i := 1; i < len(records); i++ {
		if !records[i].Tick.Before(records[i-1].Tick) {
			p.Env.Recorder.Finding("history", false, fmt.Sprintf("the history of job %s has tick %v after %v", j.name, records[i].Tick, records[i-1].Tick))
		}
	}
	if len(records) > 0 {
		if _, err = l.Get(ctx, j.name, records[0].Tick); err != nil {
			return err
		}
	}
	_, err = l.Status(ctx, j.name)
	return err
}

// publishTime has a process publish its time, as it does by itself once a minute: nothing is
// trimmed while not all clocks are known.
func publishTime(ctx context.Context, p *Process, l *locker) error {
	lease, client := l.sess.Lease(), p.Client()
	if lease == 0 || client == nil {
		return errNoSession
	}
	_, err := client.Put(ctx, p.Env.Space.Clock(int64(lease)), record.Clock{Owner: p.Name, AtMS: l.now().UnixMilli()}.Encode(), clientv3.WithLease(lease))
	return err
}

// Probe implements Workload: of each job a tick is started again, by whomever.
func (s *Jobs) Probe(ctx context.Context, p *Process) error {
	for _, j := range s.all {
		l, err := s.on(p)
		if err != nil {
			return err
		}
		if err := l.Resume(ctx, j.name); err != nil && !errors.Is(err, schedlock.ErrUnknownJob) {
			return fmt.Errorf("resume job %s: %w", j.name, err)
		}
		j.period = min(j.period, 500*time.Millisecond) // slow ones would take too long
		for last := ""; ; {
			o := jobCall{scheduled: j, bound: time.Minute, effects: 1, wait: true}
			res, err := o.run(ctx, p, l, s.registers[j.name])
			if err != nil {
				return fmt.Errorf("job %s: %w", j.name, errors.Join(err, errors.New(last)))
			}
			if res.Outcome.Started() || res.Outcome == schedlock.Claimed {
				break
			}
			last = "its outcome was: " + res.Outcome.String()
		}
		if err := l.hasPlan(ctx, j); err != nil {
			return err
		}
	}
	return nil
}
