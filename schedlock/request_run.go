package schedlock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/record"
)

// requestedFor is how long after RequestRun a process may start the run.
const requestedFor = time.Minute

// RequestRun asks the processes that use the job to run it now, for a tick of its own, which RequestRun
// returns. One of those starts it that have a Job of this name that a cron library has asked for its
// fire times; of Do, Wrap and the lockers for gocron the function is not known. The run is as one by
// Job.Trigger. RequestRun does not wait for it: Get returns its record once it has started.
//
// No process starts the run if the job is paused, runs or cools down, or if none receives the request
// within a minute. The tick is the time by the clock of this process. A process whose clock is behind
// it by more than Options.MaxSkew refuses it.
//
// RequestRun returns ErrInvalid if the name or the reason is out of range, and ErrUnknownJob if nothing
// of the job is in etcd. After ErrClosed, ctx's error or an error of etcd's a run may be started or not.
func (l *Locker) RequestRun(ctx context.Context, name, reason string) (tick time.Time, err error) {
	if err = cmp.Or(engine.CheckReason(reason), checkName(name)); err == nil {
		err = l.known(ctx, name)
	}
	if err == nil {
		tick, err = l.requestRun(ctx, name, reason)
	}
	return tick, l.about("request a run of", name, err)
}

func (l *Locker) requestRun(ctx context.Context, name, reason string) (time.Time, error) {
	ctx, cancel := l.untilClose(ctx)
	defer cancel()
	lease, err := repeat(ctx, l, func(call context.Context) (*clientv3.LeaseGrantResponse, error) {
		return l.client.Grant(call, int64(requestedFor/time.Second))
	})
	if err != nil {
		return time.Time{}, err
	}
	tick := l.opts.Now().UTC().Truncate(smallest)
	value := record.Pause{By: l.sess.Owner(), Reason: reason, AtMS: tick.UnixMilli()}.Encode()
	// A copy of the put is a request for the same tick, which starts once.
	_, err = repeat(ctx, l, func(call context.Context) (*clientv3.PutResponse, error) {
		return l.client.Put(call, l.space.Job(name).RequestedRun(), value, clientv3.WithLease(lease.ID))
	})
	return tick, err
}

// register lets requests for a run reach a Job, also one that was made just before.
func (l *Locker) register(one *Job) {
	j := l.job(one.name)
	j.mu.Lock()
	j.asked = one
	j.mu.Unlock()
	l.sess.Background(func() { l.readRequested(j) })
}

// readRequested starts what has been asked for while this process received no events of the job.
func (l *Locker) readRequested(j *job) {
	ctx, cancel := l.untilClose(l.sess.Context())
	defer cancel()
	kvs, err := l.get(ctx, func() []clientv3.Op { return []clientv3.Op{clientv3.OpGet(j.keys.RequestedRun())} })
	if err == nil && len(kvs[0]) > 0 {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.requested(kvs[0][0])
	}
}

// requested starts what another process has asked for. The job must be locked.
func (j *job) requested(kv *mvccpb.KeyValue) {
	r, ok := record.DecodePause(kv.Value)
	if one := j.asked; ok && one != nil && r.AtMS > 0 {
		one.locker.sess.Background(func() {
			res, err := one.runAsked(time.UnixMilli(r.AtMS).UTC())
			if err != nil {
				err = fmt.Errorf("%w (requested by %q)", err, r.By)
			}
			one.locker.report(res, err)
		})
	}
}

// runAsked runs the job for the tick of a request.
func (j *Job) runAsked(tick time.Time) (res Result, err error) {
	l := j.locker
	defer l.callDone(&res, &err)
	within := requestedFor
	if late := j.settings.lateBy; late > 0 {
		within = min(within, late)
	}
	return l.do(l.sess.Context(), j.name, j.fn, request{settings: j.settings, tick: tick, within: within})
}
