package schedlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/join"
	"github.com/etcdkit/etcdkit/internal/record"
)

// write records the end of the run in etcd and releases the job. It waits for etcd's answer
// until ctx ends, and no longer than the session's ReleaseTimeout. After that the work
// continues in the background until etcd has answered or the session's lease has ended.
func (r *Run) write(ctx context.Context, rec record.Run, puts []clientv3.Op) {
	sess := r.locker.sess
	known, left := make(chan error), make(chan struct{})
	defer close(left)
	var open error // why etcd has not confirmed the record
	if sess.Background(func() { r.record(rec, puts, known, left) }) {
		select {
		case open = <-known:
		case <-time.After(sess.ReleaseTimeout()):
			open = fmt.Errorf("no answer within SessionOptions.ReleaseTimeout (%v)", sess.ReleaseTimeout())
		case <-ctx.Done():
			open = ctx.Err()
		}
	} else {
		open = r.whyEnded()
		r.unregister()
	}
	if _, gone := open.(*LostError); open != nil && !gone { //nolint:errorlint // of record, which has set it
		r.setUnconfirmed(open, rec)
	}
}

// record repeats the Txn that ends the run until etcd has answered or the session's lease has
// ended. It sends why etcd has not confirmed the record to known, unless left is closed: nil if it
// has, a *LostError if the lock was gone before, or the first error.
func (r *Run) record(rec record.Run, puts []clientv3.Op, known chan<- error, left <-chan struct{}) {
	report := func(why error, text string) {
		select {
		case known <- why:
			return
		case <-left: // the call has returned
		}
		if text != "" {
			r.locker.log.Warn(text, zap.String("job", r.job.name), zap.Time("tick", r.claim.tick),
				zap.Int("attempt", r.claim.attempt), zap.Error(r.locker.sess.Explain(why)))
		}
	}
	refused := func(err error) { report(err, "") }
	ctx, cancel := r.claim.epoch.Answers(context.Background())
	defer cancel()
	removal, err := commit.EraseWith(ctx, r.locker.kv, r.job.keys.Lock(), r.claim.token, puts, refused)
	var gone error
	switch {
	case err != nil:
	case removal == commit.Absent:
		gone = r.lost(ErrLost, errGoneAtEnd)
	case removal == commit.Vanished:
		gone, err = r.vanished(ctx, rec)
	}
	if err == nil {
		r.setAnswered(gone)
	}
	r.unregister()
	switch {
	case err != nil:
		report(r.whyEnded(), "the end of a run was not recorded before its session ended: other processes see the run as lost, and start its tick again if Retries allows it")
	case gone != nil:
		report(gone, "a run was lost before its end was recorded")
	default:
		report(nil, "")
	}
}

var errGoneAtEnd = errors.New("its lock was gone from etcd when it ended")

// vanished finds out, after a lost answer, what has removed the lock: the record shows whether it went with the end of this run,
// or by Unlock, or without one. It returns ErrEpoch if the lease may have ended before.
func (r *Run) vanished(ctx context.Context, rec record.Run) (gone, err error) {
	kvs, err := r.locker.get(ctx, func() []clientv3.Op { return []clientv3.Op{clientv3.OpGet(r.job.keys.Run(r.claim.tick))} })
	if ended(ctx) != nil {
		return nil, engine.ErrEpoch
	}
	lost := false
	if err == nil && len(kvs[0]) > 0 {
		kv := kvs[0][0]
		is, _ := record.DecodeRun(kv.Value)
		switch {
		case string(kv.Value) == rec.Encode():
			return nil, nil
		case is.State == record.RunUnlocked && is.Attempt == rec.Attempt:
			return r.lost(ErrUnlocked, whyUnlocked(is)), nil
		}
		lost = tokenAt(kv, is) == r.claim.token
	}
	switch {
	case r.claim.epoch.Vanished(ctx):
		return nil, engine.ErrEpoch
	case lost:
		return r.lost(ErrLost, errGoneAtEnd), nil
	}
	return nil, nil
}

// whyEnded returns why the session has ended, as an error that does not match ErrLost.
func (r *Run) whyEnded() error {
	return cmp.Or(r.claim.epoch.WhyEnded(), ErrClosed)
}

// setUnconfirmed records that etcd has not confirmed the run's end.
func (r *Run) setUnconfirmed(why error, rec record.Run) {
	j := r.job
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.answered { // meanwhile
		return
	}
	r.open = &UnconfirmedError{Job: j.name, Tick: r.claim.tick, Attempt: r.claim.attempt, Token: r.claim.token, Cause: r.locker.sess.Explain(why)}
	j.open[r.claim.token] = rec
	if len(j.open) > memory {
		delete(j.open, slices.Min(slices.Collect(maps.Keys(j.open))))
	}
}

// setAnswered records etcd's answer to the run's end: it is recorded or, with an error, the lock was gone before.
func (r *Run) setAnswered(gone error) {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	r.answered, r.open, r.gone = true, nil, gone
	delete(r.job.open, r.claim.token)
}

// answer returns an *UnconfirmedError if etcd has not confirmed the record of the run's end, and a *LostError if the lock was
// gone before.
func (r *Run) answer() (open, gone error) {
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	return r.open, r.gone
}

// awaitAnswer takes over etcd's answer to the record of the end. Before another attempt after a failure it waits for that, as
// long as the attempt could start: without the record there would be none. more is false if the call makes none in any case.
func (r *Run) awaitAnswer(ctx context.Context, more bool) {
	r.outcome.Unconfirmed = nil
	if open, _ := r.answer(); open != nil && more && r.outcome.Outcome == Failed && r.again(ctx) {
		waiting, end := r.intime(ctx)
		defer end()
		if waiting.Err() == nil {
			r.locker.reports.unconfirmed(r.outcome, open, r.err)
		}
		select {
		case <-r.recorded:
		case <-waiting.Done():
		case <-engine.Accepts(ctx, r.locker.sess).Done():
		}
	}
	var gone error
	if r.outcome.Unconfirmed, gone = r.answer(); gone != nil {
		r.outcome.Outcome, r.err = Lost, join.Errors(r.err, gone)
	}
}

// endedHere reports whether the run with that token has ended in this process and etcd has not
// confirmed it.
func (j *job) endedHere(token int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.open[token]
	return ok
}
