package schedlock

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// records are what etcd has of a job, as one call reads them.
type records struct {
	locker *Locker
	name   string
	keys   keyspace.Job
	open   map[int64]record.Run // by token: ends of this process's runs that etcd has not confirmed, as of read
}

func recordsOf(l *Locker, name string) *records {
	return &records{locker: l, name: name, keys: l.space.Job(name)}
}

// read checks the name of a job and is get, with the job's ends that etcd has not confirmed.
func (r *records) read(ctx context.Context, reads ...clientv3.Op) ([][]*mvccpb.KeyValue, error) {
	if err := checkName(r.name); err != nil {
		return nil, err
	}
	ctx, cancel := r.locker.untilClose(ctx)
	defer cancel()
	r.open = r.openEnds() // before the read: it does not show those that are confirmed meanwhile
	kvs, err := r.locker.get(ctx, func() []clientv3.Op { return reads })
	maps.Copy(r.open, r.openEnds()) // and after it: the read may have waited for etcd
	return kvs, err
}

// openEnds returns, by token, the ends of the job's runs that etcd has not confirmed.
func (r *records) openEnds() map[int64]record.Run {
	ends := map[int64]record.Run{}
	if j := r.locker.used(r.keys.Range); j != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		maps.Copy(ends, j.open)
	}
	return ends
}

// any reads the first keys of the job, for exists.
func (r *records) any() clientv3.Op {
	return clientv3.OpGet(r.keys.Range, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(2))
}

// exists reports whether something of the job is in etcd besides its floor, which alone is what Forget
// has left.
func (r *records) exists(first []*mvccpb.KeyValue) bool {
	return slices.ContainsFunc(first, func(kv *mvccpb.KeyValue) bool {
		_, floor := r.keys.ParseFloor(string(kv.Key))
		return !floor
	})
}

// record reads one run record. A run that is recorded as running is active only while the lock exists
// that was written with the record.
func (r *records) record(kv *mvccpb.KeyValue, lock []*mvccpb.KeyValue) (Record, bool) {
	tick, ok := r.keys.ParseRun(string(kv.Key))
	run, readable := record.DecodeRun(kv.Value)
	switch {
	case ok && !readable && later(kv):
		return Record{Job: r.name, Tick: tick, State: RunUnreadable, Error: record.Why(string(kv.Key), kv.Value).Error()}, true
	case !ok || !readable:
		return Record{}, false
	}
	out := Record{Job: r.name, Tick: tick, Attempt: run.Attempt, Owner: run.Owner, Start: record.Time(run.StartMS), End: record.Time(run.EndMS), Error: run.Error, By: run.By, Request: run.Request, State: State(run.State), Cooled: record.Time(run.CooledMS)}
	token := tokenAt(kv, run)
	if ended, ok := r.open[token]; ok && run.State == record.RunRunning {
		out.State, out.End, out.Error = RunUnconfirmed, record.Time(ended.EndMS), ended.Error
	} else if run.State == record.RunRunning && tokenOf(lock) != token {
		out.State = RunLost
	}
	if out.State == RunActive {
		out.Token = token
	}
	for _, e := range run.Earlier {
		was := Record{Job: r.name, Tick: tick, State: State(e.State), Attempt: e.Attempt, Owner: e.Owner, Start: record.Time(e.StartMS), End: record.Time(e.EndMS), Error: e.Error}
		if e.State == record.RunRunning {
			was.State = RunLost
		}
		out.Earlier = append(out.Earlier, was)
	}
	return out, true
}

// lastRuns is how many of the last keys of runs are read for the latest record: it is the first that can be read, since
// a foreign or damaged one after it hides no run.
const lastRuns = 4

// latestRuns is the read of the latest records in a range of their keys, at most so many, latest first.
func latestRuns(first, end string, most int64) clientv3.Op {
	return clientv3.OpGet(first, clientv3.WithRange(end), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(most))
}

// status reads the state of the job. A record beyond the horizon is of a wrong clock, and counts when its time has come: until then it would
// hide that no start has followed.
func (r *records) status(ctx context.Context) (Status, error) {
	kvs, err := r.read(ctx, clientv3.OpGet(r.keys.Lock()), latestRuns(r.keys.Runs(), r.keys.Run(r.locker.horizon()), lastRuns),
		clientv3.OpGet(r.keys.Cooldown()), clientv3.OpGet(r.keys.Pause()), clientv3.OpGet(r.keys.Settings()), r.any(), clientv3.OpGet(r.keys.Plan()),
		clientv3.OpGet(r.keys.Operated()))
	switch {
	case err != nil:
		return Status{}, err
	case !r.exists(kvs[5]):
		return Status{}, ErrUnknownJob
	}
	out := Status{Job: r.name, Running: len(kvs[0]) > 0, Token: tokenOf(kvs[0]), CoolingDown: len(kvs[2]) > 0, Paused: pauseOf(kvs[3]), Plan: planOf(kvs[6])}
	for _, kv := range kvs[1] {
		if last, ok := r.record(kv, kvs[0]); ok {
			out.Last = &last
			break
		}
	}
	if len(kvs[4]) > 0 {
		out.Settings = record.SettingsText(settingsOf(kvs[4][0]))
	}
	if out.Plan != nil {
		out.Plan.Live, err = r.alive(ctx, kvs[4])
		out.due, out.free = r.due(kvs[6], out.Last, kvs[7])
		now, ran := r.locker.opts.Now(), int64(0)
		operated := operatedAt(kvs[7], now)
		if out.Last != nil {
			ran = out.Last.Start.UnixMilli()
		}
		plan, _ := record.DecodePlan(kvs[6][0].Value)
		out.Plan.operated, out.Plan.Gone = record.Time(operated), !out.Plan.Live && plan.Gone(now, out.Paused != nil, operated, ran)
	}
	return out, err
}

// due returns when a start is due by a plan that can be read, after the latest tick and the latest resumption. free is the same
// without a fire time that came during the latest run, if the plan has one after that.
func (r *records) due(plan []*mvccpb.KeyValue, last *Record, operated []*mvccpb.KeyValue) (due, free time.Time) {
	p, _ := record.DecodePlan(plan[0].Value)
	after := int64(-1)
	if last != nil {
		after = last.Tick.UnixMilli()
	}
	next := p.Due(max(after, operatedAt(operated, r.locker.opts.Now())))
	if next == 0 {
		return due, free
	}
	due = record.Time(next + p.LateMS)
	if last == nil || last.End.After(r.locker.horizon()) { // such an end is of a wrong clock
		return due, due
	}
	if fire := record.Time(next); !fire.Before(last.Start) && !fire.After(last.End) {
		next = cmp.Or(p.Due(last.End.UnixMilli()), next)
	}
	return due, record.Time(next + p.LateMS)
}

// operatedAt returns when a job was paused or resumed last, by another clock and so not after a time, or 0. Of a later release that
// is not known: the job may have been paused until now.
func operatedAt(operated []*mvccpb.KeyValue, now time.Time) int64 {
	if len(operated) == 0 {
		return 0
	}
	if at, ok := record.DecodeOperated(operated[0].Value); ok || !later(operated[0]) {
		return min(at.AtMS, now.UnixMilli())
	}
	return now.UnixMilli()
}

// alive reports whether a live process has the job. Settings are on the lease of one that has claimed it; only without
// them it reads what all processes have.
func (r *records) alive(ctx context.Context, settings []*mvccpb.KeyValue) (bool, error) {
	if len(settings) > 0 {
		return true, nil
	}
	kvs, err := r.read(ctx, clientv3.OpGet(r.locker.space.Users(), clientv3.WithPrefix()))
	return err == nil && userOf(kvs[0], r.name) != "", err
}

// pass sends the records that events have put, until ctx ends.
func (r *records) pass(ctx context.Context, events []*clientv3.Event, to chan<- Record) {
	for _, ev := range events {
		if ev.Type == clientv3.EventTypeDelete {
			continue
		}
		// At the revision of the event, the lock of a run that has started exists.
		out, ok := r.record(ev.Kv, []*mvccpb.KeyValue{{CreateRevision: ev.Kv.ModRevision}})
		if !ok {
			continue
		}
		select {
		case to <- out:
		case <-ctx.Done():
		}
	}
}
