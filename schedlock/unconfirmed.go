package schedlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// ending is what is known about the record of a run's end.
type ending struct {
	lost *LostError // if the lock was gone before, or nil
	open error      // why etcd has not confirmed the record, or nil
}

// why returns the reason why the end is not recorded.
func (e ending) why() error {
	if e.lost != nil {
		return e.lost
	}
	return e.open
}

// write records the end of the run in etcd and releases the job. It waits for etcd's answer
// until ctx ends, and no longer than the session's ReleaseTimeout. After that the work
// continues in the background until etcd has answered or the session's lease has ended.
func (r *Run) write(ctx context.Context, rec record.Run, puts []clientv3.Op) {
	sess := r.locker.sess
	known, left := make(chan ending), make(chan struct{})
	defer close(left)
	var e ending
	if sess.Background(func() { r.record(puts, known, left) }) {
		t := time.NewTimer(sess.ReleaseTimeout())
		defer t.Stop()
		select {
		case e = <-known:
		case <-t.C:
			e.open = fmt.Errorf("no answer within SessionOptions.ReleaseTimeout (%v)", sess.ReleaseTimeout())
		case <-ctx.Done():
			e.open = ctx.Err()
		}
	} else {
		e.open = r.whyEnded()
		r.unregister()
	}
	switch {
	case e.lost != nil:
		r.outcome.Outcome = Lost
		r.err = errors.Join(r.err, e.lost)
	case e.open != nil:
		r.setUnconfirmed(e.open, rec)
	}
}

// record repeats the Txn that ends the run until etcd has answered or the session's lease has
// ended. It sends the first result to known, unless left is closed.
func (r *Run) record(puts []clientv3.Op, known chan<- ending, left <-chan struct{}) {
	report := func(e ending, text string) {
		select {
		case known <- e:
			return
		case <-left: // the call has returned
		}
		if text != "" {
			r.locker.log.Warn(text, zap.String("job", r.job.name), zap.Time("tick", r.claim.tick),
				zap.Int("attempt", r.claim.attempt), zap.Error(r.locker.sess.Explain(e.why())))
		}
	}
	epoch := r.claim.epoch.Context()
	doubt := false // an answer was lost: if the lock is gone, this Txn may have removed it
	for pause := (commit.Backoff{Most: 10 * time.Second}); ; {
		removal, err := commit.RemoveAndPut(epoch, r.locker.client, r.job.keys.Lock(), r.claim.token, puts)
		doubt = doubt || removal == commit.Vanished
		switch {
		case err == nil && (removal != commit.Absent || doubt):
			r.setConfirmed()
			r.unregister()
			report(ending{}, "")
			return
		case err == nil:
			r.setConfirmed()
			r.unregister()
			report(ending{lost: r.lost(ErrLost, errors.New("its lock was gone from etcd when it ended"))}, "a run was lost before its end was recorded")
			return
		case epoch.Err() != nil:
			r.unregister()
			report(ending{open: r.whyEnded()}, "the end of a run was not recorded before its session's lease ended: other processes see the run as lost, and start its tick again if Retries allows it")
			return
		}
		report(ending{open: err}, "")
		_ = pause.Wait(epoch, err)
	}
}

// whyEnded returns why the session has ended, as an error that does not match ErrLost.
func (r *Run) whyEnded() error {
	cause, reason := r.claim.epoch.Why()
	if reason == nil || errors.Is(cause, ErrClosed) {
		return ErrClosed
	}
	return reason
}

// setUnconfirmed records that etcd has not confirmed the run's end.
func (r *Run) setUnconfirmed(why error, rec record.Run) {
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.confirmed { // meanwhile
		return
	}
	r.open = &UnconfirmedError{Job: j.name, Tick: r.claim.tick, Attempt: r.claim.attempt, Token: r.claim.token, Cause: r.locker.sess.Explain(why)}
	j.open[r.claim.token] = rec
	if len(j.open) > memory {
		delete(j.open, slices.Min(slices.Collect(maps.Keys(j.open))))
	}
}

// setConfirmed records that etcd has confirmed the run's end.
func (r *Run) setConfirmed() {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	r.confirmed, r.open = true, nil
	delete(r.job.open, r.claim.token)
}

// unconfirmed returns an *UnconfirmedError if etcd has not confirmed the record of the run's
// end, or nil.
func (r *Run) unconfirmed() error {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	if r.open == nil {
		return nil
	}
	return r.open
}

// endedHere reports whether the run with that token has ended in this process and etcd has not
// confirmed it.
func (j *job) endedHere(token int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.open[token]
	return ok
}

// openEnds returns, by token, the ends of a job's runs that etcd has not confirmed.
func (l *Locker) openEnds(name string) map[int64]record.Run {
	l.mu.Lock()
	j := l.jobs[l.space.Job(name).Range]
	l.mu.Unlock()
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.open)
}
