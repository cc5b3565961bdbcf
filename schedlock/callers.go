package schedlock

import (
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// callers finds the mistakes of a process that calls twice for one tick of a job: at most one of the calls
// starts. It is safe for concurrent use.
type callers struct {
	mu      sync.Mutex
	last    any       // that made the last call for a tick: a Job, a wrapped job, or a gocron locker
	former  any       // the caller before, if it was another one
	tick    time.Time // of the last call
	first   time.Time // when the first call for it was made, if the ticks are periods
	until   time.Time // when the period after that ends
	doubled bool      // two calls for one tick have been logged
}

// ofJob records the call of a Job, and logs once that two of them have one name.
func (c *callers) ofJob(log *zap.Logger, name string, by any, tick time.Time) {
	c.mu.Lock()
	// A Job that replaces another one is called after it for the same tick, but only once.
	warn := c.record(by, tick, time.Time{}, c.tick.Equal(tick) && c.last != by && c.former == by)
	c.mu.Unlock()
	if warn {
		log.Warn("two Jobs of this process have one name, and only one of them starts for each tick: give each a name of its own",
			zap.String("job", name), zap.Time("tick", tick))
	}
}

// ofPeriod records a call whose tick is a period, and returns when this process first called for the same
// one, or zero. It logs once that there are two calls in a period, unless the second comes a day later.
func (c *callers) ofPeriod(log *zap.Logger, name string, by any, tick time.Time, every time.Duration, now time.Time) (former time.Time) {
	c.mu.Lock()
	same := c.tick.Equal(tick)
	if same {
		former = c.first
	}
	c.until = tick.Add(every).Add(every)
	warn := c.record(by, tick, now, same && !nextDay(every, former, time.Time{}, now))
	c.mu.Unlock()
	if warn {
		log.Warn("a job was called twice in one period, and starts at most once: give each job a name of its own, and a period no longer than the time between two of its fire times",
			zap.String("job", name), zap.Time("tick", tick))
	}
	return former
}

// counts reports whether the next call whose tick is a period may be compared with the last one: until the period after that has
// ended.
func (c *callers) counts(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Before(c.until)
}

// formerOf returns when this process first called for a tick that is a period, if that was the last one for which it called,
// or zero.
func (c *callers) formerOf(tick time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tick.Equal(tick) {
		return time.Time{}
	}
	return c.first
}

// record reports whether a call is the first that is made twice. The callers must be locked.
func (c *callers) record(by any, tick, at time.Time, twice bool) (warn bool) {
	if c.last != by {
		c.former = c.last
	}
	if c.last = by; !c.tick.Equal(tick) {
		c.tick, c.first = tick, at
	}
	warn = twice && !c.doubled
	c.doubled = c.doubled || twice
	return warn
}

// warnOfFires logs, once for each job, that the fire times of another process are not those of this one
// although both have the same schedule.
func warnOfFires(log *zap.Logger, j *job, mine, theirs string) {
	if !differ(mine, theirs) {
		return
	}
	j.differs.Do(func() {
		log.Warn("two processes read one crontab in one zone, and have different fire times: the files of time zones of their hosts, or the parsers of their releases, differ. Near the changes of the clocks a tick may start twice or not at all",
			zap.String("job", j.name), zap.String("here", mine), zap.String("there", theirs))
	})
}

// warnOfAhead logs that a tick of the future was claimed, or that records up to one were removed, and names the
// processes whose clocks are ahead, as far as they are known. Ticks before that one do not start.
func warnOfAhead(log *zap.Logger, name string, by time.Duration, clocks []Clock) {
	var fast []string
	for _, c := range clocks {
		if c.Known && c.Ahead > by/2 {
			fast = append(fast, fmt.Sprintf("%s by %v", c.Owner, c.Ahead.Round(time.Millisecond)))
		}
	}
	log.Warn("a tick of a job was claimed before it came by the clock of this process; earlier ticks do not start any more. This clock is behind, or another one is or was ahead",
		zap.String("job", name), zap.Duration("by", by), zap.Strings("ahead", fast))
}

// warnOfStuck returns what warns, once, that a schedule does not go forward.
func warnOfStuck(log *zap.Logger, name string) func(time.Time) {
	var once sync.Once
	return func(asked time.Time) {
		once.Do(func() {
			log.Warn("the schedule of a job has answered with a fire time that is not after the time it was asked for; a later one is used. Its library may leave out fire times around changes of the clocks",
				zap.String("job", name), zap.Time("asked", asked))
		})
	}
}

// sameCron is how soon after another process has started a job a call without a tick is taken for one of the same fire time.
const sameCron = 10 * time.Second

// warnOfNoTick logs, once for each job, that a call of Do without a tick has claimed just after one of another process: a cron that
// calls on each host runs the job on each of them.
func warnOfNoTick(k *claim, c *claimed) {
	if k.timed() || k.times != nil || k.lasting || c.attempt > 1 {
		return
	}
	before := untimedBefore(k.job, c, k.sess.Owner())
	if before.IsZero() || c.tick.Sub(before) > sameCron {
		return
	}
	k.job.noTick.Do(func() {
		k.log.Warn("a call without a tick has started a job just after another process did: each call is a tick of its own. Pass Tick or Every, or use Job",
			zap.String("job", k.job.name), zap.Time("start", c.tick), zap.Time("before", before))
	})
}

// untimedBefore returns the tick of the latest run record before that of a claim without a tick, and the zero time if that is of a
// fire time, which has whole seconds, or of this process. Its claim has listed the keys.
func untimedBefore(j *job, c *claimed, owner string) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	own := j.untimed
	j.untimed = c.tick
	for _, key := range c.older {
		tick, ok := j.keys.ParseRun(key)
		if !ok || !tick.Before(c.tick) {
			continue
		}
		if by, known := j.claimed[key]; known && by == owner || tick.Equal(own) || tick.Equal(tick.Truncate(time.Second)) {
			break
		}
		return tick
	}
	return time.Time{}
}
