package schedlock

import (
	"time"

	"github.com/etcdkit/etcdkit/internal/record"
)

// What is done when events show another plan than that of this process.

// otherFor is how long the plan of another schedule stays beside a process that has the job: in a rolling deploy those of the
// former schedule may store it with their claims, and end. With the time by which a look is delayed it is as long as
// EtcdkitJobNotStarted waits after a fire time.
const otherFor = time.Minute

// stored takes the event of a plan. One that was removed, or that is of another schedule, is looked at again.
func (p *planner) stored(name string, plan record.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch times := p.jobs[name]; {
	case times != nil && ahead(plan, p.locker.opts.Now()):
		delete(p.looked, name)
	case times == nil || sameSchedule(plan.Schedule, times.stored()):
		delete(p.others, name)
		return
	case plan.Schedule == "":
		delete(p.looked, name)
	case p.others[name].IsZero():
		p.others[name] = p.locker.opts.Now()
	}
	p.wake()
}

// change calls f, which changes which Jobs a name has and plans the latest of them, as one step: otherwise one that was removed
// meanwhile, or replaced, would be planned. It does not wait for etcd.
func (p *planner) change(f func()) {
	p.latest.Lock()
	defer p.latest.Unlock()
	f()
}

// giveUp takes a Job from those of its name. If it was the latest, the one that is the latest now is planned; it returns false if
// there is none.
func (p *planner) giveUp(of *job, one *Job) (given bool) {
	p.change(func() {
		if stays := of.gives(one); stays != nil {
			given = true
			p.add(one.name, &stays.times)
		}
	})
	return given
}

// missed is called when events may have been missed: any plan may have been removed or replaced since.
func (p *planner) missed() {
	now := p.locker.opts.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.jobs {
		if p.others[name].IsZero() {
			p.others[name] = now
		}
	}
	p.wake()
}
