package schedlock

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
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

// standsBy returns the settings for a call of Lock: those of a Locker that stands by itself, if
// it has something to call.
func (g *GocronLocker[L]) standsBy(key string) request {
	r := request{settings: g.settings, within: g.settings.lateBy, single: true} // the task is gocron's to call
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
	r.aside = func(j *job, tick time.Time, r request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.watched[key] {
			return
		}
		g.watched[key] = g.locker.sess.Background(func() {
			free := g.locker.free(j, tick, r)
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
				g.locker.log.Warn("gocron does not run a job whose run was lost", zap.String("job", key), zap.Time("tick", tick), zap.Error(err))
			}
		})
	}
	return r
}

// free waits until the run of a tick has ended, and reports whether it was lost, and the tick
// may be started again.
func (l *Locker) free(j *job, tick time.Time, r request) bool {
	r.aside = nil // this is it
	ctx, cancel := l.open(context.Background())
	defer cancel()
	ctx, intime := r.bound(ctx, tick, l.opts.now())
	defer intime()
	var pause commit.Backoff
	for {
		_, changed := j.seen(j.keys.Run(tick)) // before the read, so that no event is missed
		st, err := l.look(ctx, j, tick)
		if err != nil {
			if !commit.Transient(err) || pause.Wait(ctx, err) != nil {
				return false
			}
			continue
		}
		if next := st.decide(j.name, tick, r, l.own()); next.action != await {
			return next.action == send
		}
		if l.standBy(ctx, changed) != nil {
			return false
		}
	}
}
