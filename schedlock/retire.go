package schedlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// A plan has no lease, so it would stay for ever when a job is retired without Remove and Forget: a line that was removed from
// a crontab. The processes that have a job stamp its plan once a day, and one process of the fleet removes plans without a
// stamp of the last week.

// stampEach is how old the stamp of a plan may be, and retireEach how often a process looks whether it is the one that
// removes plans.
const (
	stampEach  = 24 * time.Hour
	retireEach = time.Hour
)

// retired reports whether no process has had the job of a plan for so long that the plan counts no more. operated is when the job
// was paused or resumed last, or 0.
func retired(p record.Plan, now time.Time, operated int64) bool {
	return p.AliveMS > 0 && now.UnixMilli() > p.AliveMS+record.Kept.Milliseconds() && !p.Current(now, operated)
}

// retire removes the plans of retired jobs, if this process is the first of those that have jobs. It judges by what the
// slowest clock has passed, and does nothing while the others are not read: a process whose clock is ahead would remove plans that count.
func (p *planner) retire(ctx context.Context, e *engine.Epoch) error {
	l := p.locker
	slowest, known := l.clocks.slowest(e.Lease())
	p.mu.Lock()
	looked := p.retiredAt
	p.mu.Unlock()
	if !known || slowest.Sub(looked).Abs() < retireEach { // see rest
		return nil
	}
	first, err := l.get(ctx, func() []clientv3.Op {
		return []clientv3.Op{clientv3.OpGet(l.space.Users(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1))}
	})
	if err != nil {
		return err
	}
	if own := strings.TrimSuffix(l.space.User(int64(e.Lease()), 0), "0"); len(first[0]) > 0 && strings.HasPrefix(string(first[0][0].Key), own) {
		if err := p.retireAll(ctx, slowest); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.retiredAt = slowest
	p.mu.Unlock()
	return nil
}

// alone waits until this process writes neither plans nor what jobs it has: an older list must not come after a newer one, nor
// the plan of a job after its removal.
func (p *planner) alone(ctx context.Context) (leave func(), err error) {
	select {
	case p.writing <- struct{}{}:
		return func() { <-p.writing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("this process is writing its plans: %w", ctx.Err())
	}
}

// remove takes a job from what this process has, when the calls that may start it have ended. It removes the settings that it
// has stored, and the plan if no other live process has the job.
func (p *planner) remove(ctx context.Context, name string, times *timetable, calls *starts) error {
	p.drop(name, times)
	if err := p.unuse(ctx, name, calls); err != nil || p.has(name) { // another Job of the name, possibly a new one
		return err
	}
	return p.unplan(ctx, name, nil)
}

// unuse removes the settings that this process has stored, when the calls that may start the job have ended, unless it has
// the job by a Job or a plan. A plan by calls stays: other processes may have the job, and none is known to.
func (p *planner) unuse(ctx context.Context, name string, calls *starts) error {
	l := p.locker
	if err := calls.wait(ctx); err != nil {
		return l.waitError(ctx, err)
	}
	leave, err := p.alone(ctx)
	if err != nil {
		return l.waitError(ctx, err)
	}
	defer leave()
	asked := time.Now()
	e, err := l.sess.Live(ctx)
	if err != nil {
		return l.endError(ctx, asked, err)
	}
	if err := p.publish(ctx, e); err != nil || p.has(name) {
		return err
	}
	if err := p.unsettle(ctx, e, name); err != nil {
		return err
	}
	l.job(name).unsettled()
	return nil
}

// drop takes a job from what this process has, unless that is another Job of the name.
func (p *planner) drop(name string, times *timetable) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.jobs[name] == times {
		delete(p.jobs, name)
		delete(p.looked, name)
		delete(p.resumed, name)
		delete(p.others, name)
		p.locker.jobs.release(p.locker.job(name))
	}
}

// has reports whether this process has the job.
func (p *planner) has(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jobs[name] != nil
}

func (p *planner) retireAll(ctx context.Context, now time.Time) error {
	l := p.locker
	names, err := l.Jobs(ctx)
	if err != nil {
		return err
	}
	old := func(plan record.Plan, operated []*mvccpb.KeyValue) bool {
		return retired(plan, now, operatedAt(operated, now))
	}
	for batch := range slices.Chunk(names, plansAtOnce/2) {
		kvs, err := l.get(ctx, func() (reads []clientv3.Op) {
			for _, name := range batch {
				keys := l.space.Job(name)
				reads = append(reads, clientv3.OpGet(keys.Plan()), clientv3.OpGet(keys.Runs(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1)))
			}
			return reads
		})
		if err != nil {
			return err
		}
		for n, name := range batch {
			stored, runs := kvs[2*n], kvs[2*n+1]
			if len(stored) == 0 {
				continue
			}
			plan, ok := record.DecodePlan(stored[0].Value)
			kept := plan.Former != "" && len(runs) > 0 // until Forget
			if ok && !kept && old(plan, nil) {
				if err := p.unplan(ctx, name, old); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// unplan removes the plan of a job if no live process has the job and the plan, as it is read then, may be removed; old is nil if
// any may. A pause keeps one that is old. What OnMisfire needs of the plan is left, see former. While etcd is out of space, which
// refuses that, one that is old stays, and nothing is left of another one.
func (p *planner) unplan(ctx context.Context, name string, old func(record.Plan, []*mvccpb.KeyValue) bool) error {
	l := p.locker
	keys := l.space.Job(name)
	key := keys.Plan()
	kvs, err := l.get(ctx, func() []clientv3.Op {
		return []clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(l.space.Users(), clientv3.WithPrefix()), clientv3.OpGet(keys.Pause()), clientv3.OpGet(keys.Operated()),
			clientv3.OpGet(keys.Runs(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1))}
	})
	if err != nil || len(kvs[0]) == 0 || userOf(kvs[1], name) != "" || later(kvs[0][0]) {
		return err
	}
	plan, _ := record.DecodePlan(kvs[0][0].Value)
	left, ok := former(plan, len(kvs[4]) > 0, old != nil, l.opts.Now())
	if plan.Former != "" && ok || old != nil && (len(kvs[2]) > 0 || !old(plan, kvs[3])) {
		return nil
	}
	// A process that begins to use the job meanwhile stamps the plan.
	send := func(op clientv3.Op) error {
		_, err := repeat(ctx, l.etcd, func(call context.Context) (*clientv3.TxnResponse, error) {
			return l.client.Txn(call).If(clientv3.Compare(clientv3.ModRevision(key), "=", kvs[0][0].ModRevision)).Then(op).Commit()
		})
		return err
	}
	if ok {
		switch err := send(clientv3.OpPut(key, left.Encode())); {
		case !errors.Is(err, rpctypes.ErrNoSpace):
			return err
		case old != nil:
			return nil
		}
	}
	return send(clientv3.OpDelete(key)) // which passes
}

// former returns what is left of a plan that is removed, or is what was left of one. It returns false if that would say nothing: the
// job has no record, and no fire time was due, or too long ago.
func former(p record.Plan, ran, retired bool, now time.Time) (record.Plan, bool) {
	switch {
	case p.Former != "":
		return p, !retired || ran
	case retired:
		return p.Removed(p.AliveMS), p.Schedule != "" && ran
	}
	due := p.DueMS != 0 && p.DueMS <= now.UnixMilli()
	return p.Removed(now.UnixMilli()), p.Schedule != "" && (ran || due)
}

// unsettle removes the settings that a claim of this process has stored: they have the period, from which readers compute the
// next fire time. The next claim of another process stores its own, as after the end of this one. Those of another process
// stay: it may use the job without a plan. The value is read as well: of a key alone etcd 3.7 does not return the lease.
func (p *planner) unsettle(ctx context.Context, e *engine.Epoch, name string) error {
	l := p.locker
	key := l.space.Job(name).Settings()
	kvs, err := l.get(ctx, func() []clientv3.Op { return []clientv3.Op{clientv3.OpGet(key)} })
	if err != nil || len(kvs[0]) == 0 || clientv3.LeaseID(kvs[0][0].Lease) != e.Lease() {
		return err
	}
	_, err = repeat(ctx, l.etcd, func(call context.Context) (*clientv3.TxnResponse, error) {
		return l.client.Txn(call).If(clientv3.Compare(clientv3.ModRevision(key), "=", kvs[0][0].ModRevision)).Then(clientv3.OpDelete(key)).Commit()
	})
	return err
}
