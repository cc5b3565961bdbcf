package schedlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// requestedFor is how long after RequestRun a process may start the run.
const requestedFor = time.Minute

// RequestRun asks the processes that use the job to run it now, once, and returns the request's id. One of
// those starts it that have a Job of this name that a cron library has asked for its fire times; of Do,
// Wrap and the lockers for gocron the function is not known. The run is as one by Job.Trigger, for a tick
// of its own: the time at which that process starts it, by its own clock. The clock of the caller has no
// part in it. RequestRun does not wait for the run: Requested returns its record once it has started.
//
// No process starts the run if the job is paused, runs or cools down, or if none receives the request
// within a minute (LateBy, if that is shorter). A further request replaces one that no process has started.
//
// RequestRun returns ErrInvalid if the name or the reason is out of range, and ErrUnknownJob if nothing
// of the job is in etcd. After ErrClosed, ctx's error or an error of etcd's a run may be started or not.
func (l *Locker) RequestRun(ctx context.Context, name, reason string) (id string, err error) {
	if err = cmp.Or(engine.CheckReason(reason), checkName(name)); err == nil {
		err = l.known(ctx, name)
	}
	var lease *clientv3.LeaseGrantResponse
	if err == nil {
		ctx, cancel := l.untilClose(ctx)
		defer cancel()
		lease, err = repeat(ctx, l, func(call context.Context) (*clientv3.LeaseGrantResponse, error) {
			return l.client.Grant(call, int64(requestedFor/time.Second))
		})
	}
	if err == nil {
		id = rand.Text()
		value := record.RequestedRun{Nonce: id, By: l.sess.Owner(), Reason: reason, SentMS: l.opts.Now().UnixMilli()}.Encode()
		// After the run has started the request is gone, and a late copy must not put it again.
		err = l.operate(ctx, name, aside, func(k keyspace.Job) clientv3.Op {
			return clientv3.OpPut(k.RequestedRun(), value, clientv3.WithLease(lease.ID))
		})
	}
	if err != nil {
		return "", l.about("request a run of", name, err)
	}
	return id, nil
}

// Requested returns the record of the run that was started for a request, see RequestRun. It returns
// ErrGone if no process has started one, or its record was removed, ErrInvalid if the name is out of range,
// ErrClosed, ctx's error or an error of etcd's.
func (l *Locker) Requested(ctx context.Context, name, id string) (Record, error) {
	runs, err := l.History(ctx, name)
	if err != nil {
		return Record{}, err
	}
	for _, r := range runs {
		if r.Request == id && id != "" {
			return r, nil
		}
	}
	return Record{}, l.about("find the requested run of", name, ErrGone)
}

// requestedRun is a request for a run, as its key has it.
type requestedRun struct {
	id  string
	mod int64 // 0: there is none
}

// register lets requests for a run reach a Job, also one that was made just before.
func (l *Locker) register(one *Job) {
	j := l.job(one.name)
	j.mu.Lock()
	j.asked = one
	j.mu.Unlock()
	l.sess.Background(func() { l.readRequested(j) })
	if j.losses.begin() {
		l.sess.Background(func() { reportLost(l, j) })
	}
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
	r, ok := record.DecodeRequestedRun(kv.Value)
	one := j.asked
	if !ok || one == nil || kv.ModRevision <= j.served {
		return
	}
	j.served = kv.ModRevision
	one.locker.sess.Background(func() {
		res, err := one.runAsked(requestedRun{id: r.Nonce, mod: kv.ModRevision})
		if err != nil {
			err = fmt.Errorf("%w (requested by %q)", err, r.By)
		}
		one.locker.report(res, err)
	})
}

// runAsked runs the job as a request wants it, at this process's place in the order of the request.
func (j *Job) runAsked(asked requestedRun) (res Result, err error) {
	l := j.locker
	defer l.callDone(&res, &err)
	r := request{settings: j.settings, asked: asked, within: requestedFor, times: &j.times, next: j.times.after(j.locker.opts.Now())}
	if late := j.settings.lateBy; late > 0 {
		r.within = min(r.within, late)
	}
	ctx, cancel := l.untilClose(l.sess.Context())
	defer cancel()
	job := l.job(j.name)
	d, err := place(ctx, l, job, asked.id)
	if err != nil {
		return Result{Job: j.name}, fmt.Errorf("run job %q: %w", j.name, l.sess.Explain(joinEnd(ctx, err)))
	}
	sleep(ctx, d)
	if job.started(asked) {
		return Result{Job: j.name, Outcome: Claimed}, nil
	}
	return l.do(l.sess.Context(), j.name, j.fn, r)
}

// started reports whether events have shown that a request is gone or was replaced.
func (j *job) started(asked requestedRun) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return max(j.served, j.requestGone) > asked.mod
}
