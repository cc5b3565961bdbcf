package schedlock

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// planner stores what a process has planned: the schedules of its jobs with their next fire times, without a
// lease, so that they are known when no process is alive; and, on the lease of its session, that it has these
// jobs. It reads before it writes: of many processes with the same jobs one writes. It is safe for concurrent
// use.
type planner struct {
	locker *Locker
	first  int // of the numbers of its keys: each Locker of a session has its own

	writing chan struct{} // has room for one

	latest sync.Mutex // see change

	mu      sync.Mutex
	begun   bool
	jobs    map[string]*timetable // by name
	looked  map[string]bool       // whose plan was read or written
	resumed map[string]bool       // that were resumed since
	others  map[string]time.Time  // since when another plan may be stored than that of this process
	changed chan struct{}         // has room for one
	put     map[int]string        // by number: the keys that say which jobs it has
	lease   clientv3.LeaseID      // of these

	retiredAt time.Time // when it has looked for plans of retired jobs, by the slowest clock
}

// settle is the time within which a process with a new job looks at the plans: another one may write them first.
const settle = 2 * time.Second

// add plans a job whose schedule has been asked for its fire times.
func (p *planner) add(name string, times *timetable) {
	p.mu.Lock()
	if p.jobs[name] == nil {
		p.locker.jobs.hold(name)
	}
	p.jobs[name] = times
	delete(p.looked, name)
	begin := !p.begun
	p.begun = true
	p.mu.Unlock()
	p.wake()
	if begin {
		p.locker.sess.Callback(p.keep)
	}
}

// resume renews the plan of a job that was resumed, if this process has it: no tick that came before is due.
func (p *planner) resume(name string) {
	p.mu.Lock()
	has := p.jobs[name] != nil
	if has {
		p.resumed[name] = true
		delete(p.looked, name)
	}
	p.mu.Unlock()
	if has {
		p.wake()
	}
}

func (p *planner) wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// keep keeps the plans up to date until Close.
func (p *planner) keep() {
	l := p.locker
	ctx, cancel := l.untilClose(l.sess.Context())
	defer cancel()
	again := make(<-chan time.Time)
	refused := commit.Backoff{Least: 5 * time.Second, Most: commit.DeniedPause}
	var written *engine.Epoch // nil after a refusal
	for {
		var over <-chan struct{}
		if e, err := l.sess.Live(ctx); err == nil {
			over = e.Context().Done()
			if written != nil && e != written { // its lease has ended while it was written
				again = time.After(0)
			}
		}
		select {
		case <-p.changed:
		case <-again:
		case <-over:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(rand.N(l.opts.settle)): //nolint:gosec // it only spreads load
		case <-ctx.Done():
			return
		}
		written = nil
		if e, err := l.sess.Live(ctx); err == nil && p.write(ctx, e) == nil && p.retire(ctx, e) == nil {
			written = e
			refused.Reset()
			again = time.After(p.rest())
		} else {
			again = time.After(refused.Next())
		}
	}
}

// write reads the plans that may be missing or have run out, writes what differs, and says which jobs this process
// has.
func (p *planner) write(ctx context.Context, e *engine.Epoch) error {
	leave, err := p.alone(ctx)
	if err != nil {
		return err
	}
	defer leave()
	now := p.locker.opts.Now()
	for batch := range slices.Chunk(p.unsure(now), plansAtOnce) {
		if err := p.writeSome(ctx, batch, now); err != nil {
			return err
		}
	}
	return p.publish(ctx, e)
}

// plansAtOnce is the number of plans in one read: etcd bounds the operations of a Txn.
const plansAtOnce = 100

// planned is a job with its fire times.
type planned struct {
	name    string
	times   *timetable
	resumed bool
}

// unsure returns the jobs whose plans were not read, or have run out.
func (p *planner) unsure(now time.Time) (out []planned) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, times := range p.jobs {
		since := p.others[name]
		if !p.looked[name] || !p.locker.job(name).plannedUntil().After(now) || !since.IsZero() && now.Sub(since) >= otherFor {
			out = append(out, planned{name, times, p.resumed[name]})
		}
	}
	return out
}

func (p *planner) writeSome(ctx context.Context, jobs []planned, now time.Time) (err error) {
	l := p.locker
	p.look(jobs, true) // events that come from here on count
	for _, j := range jobs {
		l.job(j.name).reading()
	}
	defer func() {
		if err != nil {
			p.look(jobs, false)
		}
	}()
	kvs, err := l.get(ctx, func() (reads []clientv3.Op) {
		for _, j := range jobs {
			reads = append(reads, clientv3.OpGet(l.job(j.name).keys.Plan()))
		}
		return reads
	})
	if err != nil {
		return err
	}
	for n, j := range jobs {
		want := j.times.plan(now)
		want.AliveMS = now.UnixMilli()
		plan, mod, ok := renewed(kvs[n], l.job(j.name).former(), want, now, j.resumed)
		if ok && l.job(j.name).written(want, now, j.resumed) { // one that finds another revision is a write for etcd, too
			continue
		}
		if ok {
			key := l.job(j.name).keys.Plan()
			// A copy, and the write of another process, find another revision.
			_, err = repeat(ctx, l.etcd, func(call context.Context) (*clientv3.TxnResponse, error) {
				return l.kv.Txn(call).If(clientv3.Compare(clientv3.ModRevision(key), "=", mod)).Then(clientv3.OpPut(key, plan.Encode())).Commit()
			})
			if err != nil {
				return err
			}
		}
		l.job(j.name).setPlanned(plan)
	}
	return nil
}

// look records whether the plans of these jobs were read or written.
func (p *planner) look(jobs []planned, looked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range jobs {
		switch {
		case !looked:
			delete(p.looked, j.name)
			if j.resumed {
				p.resumed[j.name] = true
			}
		case p.jobs[j.name] == j.times: // and not one that has replaced it meanwhile
			p.looked[j.name] = true
			delete(p.resumed, j.name)
			delete(p.others, j.name)
		}
	}
}

// rest returns how long the plans are up to date.
func (p *planner) rest() time.Duration {
	now := p.locker.opts.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := retireEach
	if now.Sub(p.retiredAt).Abs() >= retireEach { // the slowest clock was not known, or not as far: it may be after the next beat
		wait = beat
	}
	for _, since := range p.others {
		wait = min(wait, max(0, otherFor-now.Sub(since)))
	}
	for name := range p.jobs {
		if until := p.locker.job(name).plannedUntil(); until.After(now) {
			wait = min(wait, until.Sub(now))
		}
	}
	return wait + rand.N(beat) //nolint:gosec // it only spreads load
}

// keysOfLocker is how many keys a Locker may need for the names of its jobs.
const keysOfLocker = 1000

// namesAtOnce bounds the names in one key, in bytes: a record has 32 KiB at most.
const namesAtOnce = 16 << 10

// publish says which jobs this process has, if etcd does not know that.
func (p *planner) publish(ctx context.Context, e *engine.Epoch) error {
	l := p.locker
	for n, names := range p.names() {
		value := record.User{Owner: l.sess.Owner(), Jobs: names}.Encode()
		if p.known(e.Lease(), n, value) {
			continue
		}
		_, err := repeat(ctx, l.etcd, func(call context.Context) (*clientv3.PutResponse, error) {
			return l.kv.Put(call, l.space.User(int64(e.Lease()), p.first+n), value, clientv3.WithLease(e.Lease()))
		})
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.put[n] = value
		p.mu.Unlock()
	}
	return p.unpublish(ctx, e)
}

// unpublish removes the keys with names of jobs that this process does not need any more.
func (p *planner) unpublish(ctx context.Context, e *engine.Epoch) error {
	need := len(p.names())
	p.mu.Lock()
	var surplus []int
	for n := range p.put {
		if n >= need {
			surplus = append(surplus, n)
		}
	}
	p.mu.Unlock()
	for _, n := range surplus {
		_, err := repeat(ctx, p.locker.etcd, func(call context.Context) (*clientv3.DeleteResponse, error) {
			return p.locker.client.Delete(call, p.locker.space.User(int64(e.Lease()), p.first+n))
		})
		if err != nil {
			return err
		}
		p.mu.Lock()
		delete(p.put, n)
		p.mu.Unlock()
	}
	return nil
}

// planOf reads a job's plan, or returns nil.
func planOf(kvs []*mvccpb.KeyValue) *Plan {
	if len(kvs) == 0 {
		return nil
	}
	p, ok := record.DecodePlan(kvs[0].Value)
	if !ok || p.Former != "" {
		return nil
	}
	out := &Plan{Text: record.Text(p.Text), Zone: record.Text(p.Zone), Due: record.Time(p.DueMS), Called: p.Called, Late: time.Duration(p.LateMS) * time.Millisecond}
	for _, at := range p.InRow() {
		out.Next = append(out.Next, record.Time(at))
	}
	return out
}

// userOf returns the owner of a live process that has a job, by the keys of all, or "".
func userOf(kvs []*mvccpb.KeyValue, job string) string {
	for _, kv := range kvs {
		switch r, ok := record.DecodeUser(kv.Value); {
		case ok && slices.Contains(r.Jobs, job):
			return cmp.Or(r.Owner, "a process without a name")
		case !ok && later(kv):
			return "a process of a later release, whose list of jobs this one cannot read,"
		}
	}
	return ""
}

// known reports whether a key is in etcd with that value, on that lease.
func (p *planner) known(lease clientv3.LeaseID, n int, value string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lease != lease {
		p.lease, p.put = lease, map[int]string{}
	}
	return p.put[n] == value
}

// names returns the names of the jobs in portions.
func (p *planner) names() (out [][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for name := range p.jobs {
		all = append(all, name)
	}
	slices.Sort(all)
	size := namesAtOnce
	for _, name := range all {
		if size += len(name) + len(`"",`); size > namesAtOnce {
			out, size = append(out, nil), len(name)
		}
		out[len(out)-1] = append(out[len(out)-1], name)
	}
	return out
}

// stored returns the schedule as a plan has it: a period, or fire times.
func (tt *timetable) stored() string {
	if every, ok := tt.schedule.(Periods); ok {
		return time.Duration(every).String()
	}
	return tt.print()
}

// plan returns the plan of a schedule from a time on.
func (tt *timetable) plan(from time.Time) record.Plan {
	home := tt.home(time.UTC)
	p := record.Plan{Schedule: tt.stored(), Zone: home.String(), Text: tt.textIn(home)}
	if _, ok := tt.schedule.(Periods); ok {
		p.Zone = ""
	}
	next := from
	for range 3 {
		if next = tt.after(next); next.IsZero() {
			break
		}
		p.NextMS = append(p.NextMS, next.UnixMilli())
	}
	if len(p.NextMS) == 0 {
		return p
	}
	p.DueMS = p.NextMS[0]
	for _, later := range []time.Duration{10 * time.Minute, time.Hour} {
		if at := tt.after(from.Add(later)); !at.IsZero() && at.UnixMilli() > p.Until() {
			p.NextMS = append(p.NextMS, at.UnixMilli())
			p.Sparse++
		}
	}
	return p
}
