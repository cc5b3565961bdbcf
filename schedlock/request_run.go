package schedlock

import (
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/record"
)

// requestedFor is how long after RequestRun a process may start the run.
const requestedFor = time.Minute

// requestedRun is a request for a run, as its key has it.
type requestedRun struct {
	id  string
	mod int64 // 0: there is none
}

// register lets requests for a run reach the Job, also one that was made just before.
func (j *Job) register() {
	l := j.locker
	of := l.job(j.name)
	of.mu.Lock()
	of.jobs = append(of.jobs, j)
	of.mu.Unlock()
	l.sess.Background(func() { readRequested(l, of) })
	if of.losses.begin() {
		l.sess.Callback(func() { reportLost(l, of) })
	}
}

// readRequested starts what has been asked for while this process received no events of the job.
func readRequested(l *Locker, j *job) {
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
	if !ok || len(j.jobs) == 0 || kv.ModRevision <= j.served {
		return
	}
	one := j.jobs[len(j.jobs)-1]
	j.served = kv.ModRevision
	one.locker.sess.Callback(func() {
		res, err := one.runAsked(requestedRun{id: r.Nonce, mod: kv.ModRevision})
		if err != nil {
			err = fmt.Errorf("%w (requested by %q)", err, r.By)
		}
		one.locker.reports.result(res, err)
	})
}

// runAsked runs the job as a request wants it, at this process's place in the order of the request.
func (j *Job) runAsked(asked requestedRun) (res Result, err error) {
	l := j.locker
	defer l.reports.callDone(&res, &err)
	next := j.times.after(l.opts.Now())
	r := request{settings: j.settings, starts: j.starts, asked: asked, own: true, within: requestedFor, times: &j.times, again: next, next: next}
	if late := j.settings.lateBy; late > 0 {
		r.within = min(r.within, late)
	}
	life, end := l.own()
	defer end()
	ctx, cancel := l.untilClose(life)
	defer cancel()
	job := l.jobs.hold(j.name)
	defer l.jobs.release(job)
	d, err := place(ctx, l, job, asked.id)
	if err != nil {
		return Result{Job: j.name}, fmt.Errorf("run job %q: %w", j.name, l.sess.Explain(joinEnd(ctx, err)))
	}
	sleep(ctx, d)
	if job.started(asked) {
		return Result{Job: j.name, Outcome: Claimed}, nil
	}
	return l.do(life, j.name, j.fn, r)
}

// started reports whether events have shown that a request is gone or was replaced.
func (j *job) started(asked requestedRun) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return max(j.served, j.requestGone) > asked.mod
}
