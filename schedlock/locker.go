package schedlock

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Options configure a Locker. nil means all defaults.
type Options struct {
	// Keep is the number of run records that are kept of each job. Defaults to 20; at most 1000.
	// Old records are removed when a run of the job ends. Those of lost runs among the last 20 stay until a process has
	// reported the loss.
	Keep int
	// KeepFor is the age up to which run records are kept, by the slowest clock of the live processes. Defaults to
	// 30 days. The latest record of a job whose tick has come by that clock is kept at any age.
	KeepFor time.Duration
	// MaxSkew is the difference that is allowed between the clocks of the fleet. A tick that is
	// further in the future is refused. The record of such a tick, by a process with a faster clock,
	// does not keep earlier ticks from starting, and is not the last one for Status. Defaults to one minute.
	MaxSkew time.Duration
	// Done is called with the result and the error of each call: for metrics and alerts, in
	// particular under a cron library, which drops both. The goroutine that made the call calls it.
	// With RetryFailed or Retries, the failure of a call is that of its own last attempt: another process may
	// have completed the tick since.
	// Defaults to nothing; the session's Logger gets failures of such calls in any case.
	Done func(Result, error)
	// Lost is called with the record of a run that was lost: its process died, was partitioned or was paused
	// for longer than its session's TTL. A process that uses the job calls it, not the one whose run was
	// lost: within the TTL of the loss or, if no process was alive, when the next one begins to use the job.
	// Set it in all processes: in the whole fleet a loss is reported at least once, whether or not the process that does so
	// has Lost set. Of the names that it passes to Do or an adapter, a process uses the 500 latest. Two processes report the same loss if one starts the tick again while the other finds the loss, or if the
	// first one ends before etcd has its mark: Job, Tick and Attempt are the same in both calls. It must return soon. A run
	// whose end was not confirmed (Result.Unconfirmed) is lost for other processes. Defaults to nothing; the session's Logger
	// gets a warning in any case.
	Lost func(Record)
	// Now is the wall clock that decides which ticks have come, for tests and simulations. It must
	// be safe for concurrent use. It does not affect how long runs and leases last: the machine's
	// own clock measures that. Defaults to time.Now.
	Now func() time.Time

	beat   time.Duration // between two publications of this process's time
	settle time.Duration // within which plans are looked at after a change
	few    int           // see fewJobs

	patience time.Duration // how long a call waits for the end of settings; 0: a TTL and a second
}

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	out.Keep = cmp.Or(out.Keep, 20)
	out.KeepFor = cmp.Or(out.KeepFor, 30*24*time.Hour)
	out.MaxSkew = cmp.Or(out.MaxSkew, time.Minute)
	out.beat = cmp.Or(out.beat, beat)
	out.settle = cmp.Or(out.settle, settle)
	out.few = cmp.Or(out.few, fewJobs)
	if out.Now == nil {
		out.Now = time.Now
	}
	switch {
	case out.Keep < 1 || out.Keep > 1000:
		return out, invalid("Options.Keep %d is not between 1 and 1000", out.Keep)
	case out.KeepFor < smallest:
		return out, invalid("Options.KeepFor %v is below a millisecond", out.KeepFor)
	case out.MaxSkew < smallest:
		return out, invalid("Options.MaxSkew %v is below a millisecond", out.MaxSkew)
	}
	return out, nil
}

// Locker runs the jobs of one namespace in this process. One Locker per session is enough, unless jobs
// differ in what Options says; it lives as long as its session. It is safe for concurrent use.
type Locker struct {
	*etcd
	opts    Options
	log     *zap.Logger
	reports *reports
	plans   *planner
	clocks  *clocks
	turns   turns // one for each claim in flight
	jobs    *jobs
}

// New returns a Locker on a session. It sends nothing to etcd before it returns; in the background
// it then watches the jobs of the session's namespace and publishes the time of this process. Close
// the session to end it: Close waits for the active runs. New returns ErrInvalid if the session is
// nil or an option is out of range, and ErrClosed if the session is closed.
func New(s *concurrency.Session, opts *Options) (*Locker, error) {
	if s == nil || engine.Of(s) == nil {
		return nil, fmt.Errorf("new locker: %w", invalid("the session is nil"))
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("new locker: %w", err)
	}
	sess := engine.Of(s)
	l := &Locker{etcd: &etcd{sess: sess, client: sess.Etcd(), kv: sess.KV(), space: sess.Space()}, opts: o, log: sess.Log(), reports: &reports{log: sess.Log(), done: o.Done, hooks: sess.Hooks(), refused: map[string]string{}}, turns: make(turns, mostTurns)}
	l.jobs = newJobs(l.etcd, o.few, o.Now)
	l.plans = &planner{locker: l, first: (int(sess.Lockers.Add(1)) - 1) * keysOfLocker, jobs: map[string]*timetable{}, looked: map[string]bool{}, resumed: map[string]bool{}, others: map[string]time.Time{}, changed: make(chan struct{}, 1), writing: make(chan struct{}, 1), put: map[int]string{}}
	l.clocks = &clocks{space: l.space, now: o.Now, outlasts: samples * o.beat, peers: map[string]*peer{}}
	sess.Rewound.Add(l.rewound)
	ctx, open := sess.Context(), true
	for _, work := range []func(late context.Context){
		func(context.Context) { sess.Source().Listen(ctx, l.space.Jobs(), l.resync, l.apply) },
		func(context.Context) { sess.Source().Follow(ctx, l.space.Clocks(), 0, l.clocks) },
		func(context.Context) { l.clocks.publish(sess.Accepting(), sess, o.beat) },
		func(context.Context) { <-sess.Accepting().Done(); giveUpSettings(ctx, l) },
		func(late context.Context) { <-ctx.Done(); l.jobs.revokeSpares(late) },
	} {
		open = open && sess.Later(work)
	}
	if !open || ctx.Err() != nil {
		return nil, fmt.Errorf("new locker: %w", ErrClosed)
	}
	return l, nil
}

// Clocks returns the wall clocks of the other processes that run jobs of the namespace, as this
// process sees them. Ticks start by the clock of the process that claims first: a process whose
// clock is ahead starts jobs early, and one whose clock is behind finds its ticks claimed. Clocks
// reads no etcd and never fails.
func (l *Locker) Clocks() []Clock {
	return l.clocks.list(l.sess.Lease())
}

// Job returns a job for a cron library. It sends nothing to etcd.
//
// A schedule that counts from the time at which it is asked, such as @every, has no fire times on
// which processes could agree, and is refused: pass Periods in its place. (robfig's @every 1s fires
// at whole seconds, and is accepted.) So is one without a fire time, such as the 31st of April.
// Without LateBy, a tick starts before the next fire time or not at all.
//
// Two Jobs of one name are one job: at most one of them starts for each tick. If one process uses
// both, a warning is logged once.
//
// Job returns ErrInvalid if the name, the schedule or an option is out of range, if the schedule or
// the function is nil, and if options contradict each other, the schedule, or the settings with
// which this process uses the job.
func (l *Locker) Job(name string, schedule Schedule, fn Func, opts ...JobOption) (*Job, error) {
	periods, _ := schedule.(Periods)
	s, err := newSettings(time.Duration(periods), opts)
	j := &Job{locker: l, name: name, fn: fn, settings: s, times: timetable{schedule: schedule}, starts: newStarts()}
	j.times.stuck = warnOfStuck(l.log, name)
	err = cmp.Or(checkName(name), err)
	switch {
	case err != nil:
	case checkSchedule(schedule) != nil:
		err = checkSchedule(schedule)
	case fn == nil:
		err = invalid("the function is nil")
	case schedule == periods:
		err = cmp.Or(checkPeriod(fmt.Sprintf("the period %v", s.every), s.every), s.checkFailed(s.every))
	default:
		err = j.times.check(s, l.opts.Now())
	}
	if err == nil {
		err = l.job(name).use(s.fingerprint())
	}
	if err != nil {
		return nil, fmt.Errorf("new job %q: %w", name, err)
	}
	return j, nil
}

// job returns the job of that name.
func (l *Locker) job(name string) *job { return l.jobs.get(name) }

// used returns the job with that range, or nil if this process does not use it.
func (l *Locker) used(jobRange string) *job { return l.jobs.known(jobRange) }

// resync is called when the watch is established again. The events that were missed may concern the
// active runs of this process, calls on standby, and the loss of another process's run.
func (l *Locker) resync() {
	l.plans.missed()
	for _, j := range l.jobs.all() {
		j.mu.Lock()
		for _, r := range j.runs {
			l.sess.Background(func() { _ = r.Check(r.claim.epoch.Context()) })
		}
		if len(j.jobs) > 0 {
			l.sess.Background(func() { readRequested(l, j) })
		}
		if j.print != "" || len(j.claimed) > 0 || j.planned.Schedule != "" {
			l.sess.Callback(func() { reportLost(l, j) })
		}
		j.floor = time.Time{} // it may have been deleted
		j.notify()
		j.mu.Unlock()
	}
}

// rewound is called when etcd's history was taken back: the revisions of its events compare no more.
func (l *Locker) rewound() {
	for _, j := range l.jobs.all() {
		j.rewound()
	}
}

// apply passes events on to their jobs. It ignores jobs that this process does not use.
func (l *Locker) apply(events []*clientv3.Event) {
	// A run record has the reason why a lock was deleted, so records come first.
	for _, locks := range []bool{false, true} {
		for _, ev := range events {
			key := string(ev.Kv.Key)
			rest, ok := strings.CutPrefix(key, l.space.Jobs())
			if !ok || strings.HasSuffix(key, "/lock") != locks {
				continue
			}
			name, _, _ := strings.Cut(rest, "/")
			if j := l.used(l.space.Jobs() + name + "/"); j != nil {
				j.apply(key, ev)
				if key == j.keys.Plan() {
					plan, _ := record.DecodePlan(ev.Kv.Value)
					l.plans.stored(j.name, plan)
				}
				if key == j.keys.Pause() && ev.Type == clientv3.EventTypeDelete {
					l.plans.resume(j.name)
				}
				if j.losses.suspects() {
					l.sess.Callback(func() { reportLost(l, j) })
				}
			}
		}
	}
}

// horizon returns the latest tick whose claim keeps earlier ticks from starting: a process that claims
// beyond it has a wrong clock.
func (l *Locker) horizon() time.Time { return l.horizonAt(l.opts.Now()) }

// horizonAt is the horizon at a time.
func (l *Locker) horizonAt(now time.Time) time.Time { return now.Add(l.opts.MaxSkew).Add(smallest) } // no sum, which could exceed a Duration

// outdated returns until when ticks are so old that their records are removed. A clock that is ahead would remove those of the whole
// fleet, so it is by a time that all clocks have passed.
func (l *Locker) outdated() time.Time {
	slowest, _ := l.clocks.slowest(l.sess.Lease())
	return slowest.Add(-l.opts.KeepFor)
}
