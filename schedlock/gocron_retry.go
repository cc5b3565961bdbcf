package schedlock

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// Retry has a tick whose run was lost started again, as Retries allows, by a call of again: the
// RunNow of gocron's job of that name.
//
//	job, err := s.NewJob(…, gocron.WithName("sweep"))
//	locker.Retry("sweep", job.RunNow)
//
// Without Retry the call of Lock itself is on standby. gocron counts it as a running task: it
// occupies one of the places of WithLimitConcurrentJobs, so that other jobs wait for it, and delays
// the next run of a job in singleton mode. With Retry such a call returns at once, as Claimed, and
// the Locker is on standby in the background. Call Retry before the scheduler starts. It has no
// effect without Retries.
func (g *GocronLocker[L]) Retry(key string, again func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.again[key] = again
}

// newRequest returns the request of a call of Lock. If Retry was called for the job, the Locker is
// on standby in place of the call.
func (g *GocronLocker[L]) newRequest(key string) request {
	r := request{settings: g.settings, within: g.settings.lateBy, single: true} // gocron calls the task
	g.mu.Lock()
	defer g.mu.Unlock()
	again := g.again[key]
	if again == nil {
		return r
	}
	if tick, ok := g.lost[key]; ok {
		delete(g.lost, key)
		r.tick = tick
	}
	r.standby = func(j *job, tick time.Time, r request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.watched[key] {
			return
		}
		g.watched[key] = g.locker.sess.Background(func() {
			free := g.locker.waitLost(j, tick, r)
			g.mu.Lock()
			g.watched[key] = false
			if free {
				g.lost[key] = tick
			}
			g.mu.Unlock()
			if !free {
				return
			}
			if err := again(); err != nil {
				g.locker.log.Warn("gocron refused to run a job again whose run was lost", zap.String("job", key), zap.Time("tick", tick), zap.Error(err))
			}
		})
	}
	return r
}

// waitLost waits until the run of a tick has ended, and reports whether it was lost and another
// attempt may be made.
func (l *Locker) waitLost(j *job, tick time.Time, r request) bool {
	r.standby = nil // this is the standby
	ctx, cancel := l.untilClose(context.Background())
	defer cancel()
	ctx, intime := r.bound(ctx, tick, l.opts.Now())
	defer intime()
	next, err := l.obstacle(ctx, j, plan{tick: tick}, r)
	return err == nil && next.action == send
}
