package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Commit records that the request is done, with its result, which duplicates get from then
// on, for as long as Retain says. What was given to Attach is part of the same Txn. Then the
// attempt is settled.
//
// It returns ErrConflict if a condition given to Attach is not met, and ErrInvalid if etcd takes no
// such operations: then nothing was written, the attempt goes on, and what was given to
// Attach is dropped. It returns ErrFenced if another attempt has taken over, ErrSettled if
// this one was settled before. After ErrNotRecorded, joined with ctx's error or one of
// etcd's, the outcome is not known to be in etcd for the whole of Retain: it is being written in
// the background, as long as the session is open, and the key is not given free. If the attempt's context had
// ended before, ErrNotRecorded is joined with its cause, such as ErrLost: then another attempt
// may have begun. ctx bounds this call only.
func (a *Attempt) Commit(ctx context.Context, result []byte) error {
	return a.finish(ctx, &settlement{state: record.AttemptDone, value: bytes.Clone(result)})
}

// Fail records that the request has failed for good: duplicates get this failure, and
// the work is not tried again. The failure is stored as it is, whatever the Codec: what is
// secret belongs into the details, which are kept as a result is. It returns what Commit
// returns: ErrConflict, ErrFenced, ErrSettled, ErrNotRecorded.
func (a *Attempt) Fail(ctx context.Context, failure string, details []byte) error {
	return a.finish(ctx, &settlement{state: record.AttemptFailed, value: bytes.Clone(details), failure: record.Text(failure)})
}

// Release gives the key free, as if the request had never come, except for its recovery
// points. The next duplicate is another attempt. Without recovery points the next request may
// have another payload, so Release is for work that was not begun; after work that has failed,
// return the error from Do's or Run's function. It returns what Commit returns but ErrConflict.
func (a *Attempt) Release(ctx context.Context) error {
	return a.finish(ctx, &settlement{state: record.AttemptReleased})
}

// Abandon leaves the attempt as if its process had died: what it has done is not known, and
// OnLost says what comes next. It returns what Commit returns but ErrConflict.
func (a *Attempt) Abandon(ctx context.Context) error {
	return a.finish(ctx, &settlement{})
}

// errRejected says that etcd takes no such Txn as the caller's operations make.
var errRejected = invalid("what was given to Attach")

// settlement is how an attempt is to end.
type settlement struct {
	state   string // "" to abandon it
	value   []byte
	failure string
	omit    bool // there is no value to keep
	ran     bool // the function has run, so the key is kept for its payload after a release
	gone    bool // the claim that was to be abandoned was not there any more

	reported error // why the attempt's context had ended, if the caller reports that itself

	ready  bool
	alone  bool   // etcd has refused it, and would those that go with it
	since  moment // before the first try to write it
	stored []byte
	rec    record.Attempt
	text   string // of rec
	ifs    []clientv3.Cmp
	then   []clientv3.Op
}

// finish writes the outcome, once.
func (a *Attempt) finish(ctx context.Context, o *settlement) error {
	_ = a.Err() // a pause may have outlasted the session, and no timer has fired yet
	a.mu.Lock()
	if over := a.over; over != nil || a.ending {
		a.mu.Unlock()
		if over == nil {
			over = ErrSettled
		}
		return fmt.Errorf("%v: %w", a.key, over)
	}
	a.ending = true
	o.ifs, o.then = a.ifs, a.then
	a.mu.Unlock()
	if o.state == "" || o.state == record.AttemptReleased {
		a.life.End(ErrSettled) // before another attempt may begin
	}
	held := true
	select {
	case a.writing <- struct{}{}: // a recovery point may be on its way
	case <-ctx.Done():
		held = false
	}
	a.life.Halt() // not before: MaxExecution ends a recovery point as well
	err, again := error(nil), true
	if held && ctx.Err() == nil {
		// Where the session has ended, nothing is left that could try again.
		tries, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(a.store.client.Ctx(), cancel)
		err, again = a.write(tries, o)
		stop()
		cancel()
	}
	if !again {
		a.settled(o, err)
		<-a.writing
		return wrap(a.key, err)
	}
	err = errors.Join(ErrNotRecorded, a.store.explain(because(ctx, err)))
	if !a.epoch.Valid() { // the same again: this may have taken its time
		a.life.Lose(a.lostWithSession())
	}
	a.life.End(ErrSettled)                                          // that ends a recovery point on its way, too
	if gone := a.interrupted(); gone != nil && gone != o.reported { //nolint:errorlint // the same error, not the same kind
		err = errors.Join(err, gone)
	}
	s := a.store
	s.count.pending.Add(1)
	if !s.sess.Background(func() {
		if !held {
			a.writing <- struct{}{}
		}
		defer func() { s.count.pending.Add(-1); <-a.writing }()
		a.goOn(o)
	}) {
		s.count.pending.Add(-1)
		a.settled(o, err)
		if held {
			<-a.writing
		}
	}
	return wrap(a.key, err)
}

func wrap(k Key, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%v: %w", k, err)
}

// goOn writes the outcome in the background, for as long as the session is open.
func (a *Attempt) goOn(o *settlement) {
	s := a.store
	ctx := s.sess.Context()
	pause := commit.Backoff{Most: 5 * time.Second}
	for {
		err, again := a.write(ctx, o)
		if err != nil && !again {
			s.log.Warn("an outcome could not be recorded", zap.Stringer("request", a.key), zap.Error(err))
			if errors.Is(err, ErrConflict) || errors.Is(err, errRejected) {
				// Nobody is there any more to decide: so it is lost.
				a.drop()
				err = ErrSettled
			}
		}
		if again {
			if again = pause.Wait(ctx, err) == nil; again {
				continue
			}
		}
		a.settled(o, err)
		return
	}
}

// settled ends the attempt here, or lets it go on after a conflict.
func (a *Attempt) settled(o *settlement, err error) {
	s := a.store
	a.mu.Lock()
	if errors.Is(err, ErrConflict) || errors.Is(err, errRejected) {
		a.ending, a.ifs, a.then = false, nil, nil
		a.mu.Unlock()
		a.life.Resume()
		return
	}
	a.over = ErrSettled
	a.final = err == nil && (o.state != "" || !o.gone && errors.Is(a.life.Cause(), ErrSettled))
	if errors.Is(err, ErrFenced) {
		a.over = ErrFenced
		s.count.fenced.Add(1)
	}
	if err == nil && (o.state == record.AttemptDone || o.state == record.AttemptFailed) {
		a.outcome = &Outcome{Value: o.value, Failed: o.state == record.AttemptFailed, Failure: o.failure, Omitted: o.rec.Omitted,
			Attempt: a.rec.Number, Token: a.token, print: prints{payload: a.rec.Print, also: a.rec.Also}}
		if o.rec.Omitted {
			a.outcome.Value = nil
			s.count.omitted.Add(1)
		}
	}
	done := a.outcome
	a.mu.Unlock()
	if err == nil {
		switch o.state {
		case record.AttemptDone:
			s.count.done.Add(1)
		case record.AttemptFailed:
			s.count.failed.Add(1)
		case record.AttemptReleased:
			s.count.released.Add(1)
		default:
			s.count.abandoned.Add(1)
		}
	}
	a.stop()
	a.life.End(ErrSettled)
	if done != nil {
		s.cache.put(a.entry.Ref, done, o.since, a.set.retain)
	}
	a.given.Do(func() { s.work.give(a.work, err != nil || o.state == "") })
	a.land(done)
}

// write writes the outcome. Again says that it is worth trying once more, later.
func (a *Attempt) write(ctx context.Context, o *settlement) (err error, again bool) {
	s := a.store
	if err := a.resolve(ctx); err != nil && o.state != "" {
		return err, !errors.Is(err, ErrFenced)
	}
	switch o.state {
	case "":
		removal, err := commit.Remove(ctx, s.client, a.entry.Claim(), a.token)
		o.gone = removal == commit.Absent
		return err, err != nil
	case record.AttemptReleased:
		return a.release(ctx, o)
	}
	parts := a.prepare(o)
	s.space.writes(2+len(parts), max(len(o.text), o.rec.Size))
	for {
		lease, err := s.retain(a.set.retain).take(ctx, 1+len(parts))
		if err != nil {
			return err, true
		}
		gone, err := a.writeParts(ctx, lease, parts)
		if commit.TooLarge(err) {
			parts = a.omit(o, err)
			continue
		}
		if err != nil {
			return err, !errors.Is(err, ErrFenced)
		}
		var res commit.Amending
		if !gone {
			then := []clientv3.Op{clientv3.OpPut(a.entry.Record, o.text, clientv3.WithLease(lease.id)), clientv3.OpDelete(a.entry.Claim())}
			var together commit.Together
			if len(o.ifs)+len(o.then) == 0 && !o.alone { // what the caller has given touches who knows what
				together = s.together(a.entry)
			}
			sent := now()
			if res, err = commit.Amend(ctx, s.client, commit.Amendment{
				Key: a.entry.Record, Mod: a.mod, If: o.ifs, Then: append(then, o.then...),
				Mine: func(kv *mvccpb.KeyValue) bool { return kv != nil && string(kv.Value) == o.text },
				Same: func() clientv3.Op {
					return clientv3.OpPut(a.entry.Record, a.rec.Encode(), clientv3.WithLease(a.work.id))
				},
				Together: together,
			}); err != nil {
				if o.alone = rejects(err); o.alone && len(o.ifs)+len(o.then) > 0 {
					return fmt.Errorf("%w: %w", errRejected, err), false
				}
				if commit.TooLarge(err) && !o.rec.Omitted {
					parts = a.omit(o, err)
					continue
				}
				return err, true
			}
			switch res.Outcome {
			case commit.Amended:
				s.saw(res.Mod, sent)
				err := s.prolong(ctx, s.retain(a.set.retain), lease, res, kept{entry: a.entry, text: o.text, token: a.token, parts: parts})
				return err, err != nil
			case commit.Unmet:
				a.mod = res.Mod
				return ErrConflict, false
			case commit.Overtaken:
				return a.fenced(), false
			}
		}
		// A lease is gone, ours or one that the caller has named.
		if len(o.then) > 0 {
			call, cancel := commit.Call(ctx)
			ours, err := s.client.TimeToLive(call, lease.id)
			cancel()
			if err != nil {
				return err, true
			}
			if ours.TTL > 0 {
				return fmt.Errorf("%w: %w", errRejected, rpctypes.ErrLeaseNotFound), false
			}
		}
		s.retain(a.set.retain).forget(lease)
	}
}

// rejects tells whether etcd takes no such Txn, now or later.
func rejects(err error) bool {
	if commit.TooLarge(err) {
		return true
	}
	var known rpctypes.EtcdError
	return errors.As(err, &known) && (known.Code() == codes.InvalidArgument || known.Code() == codes.PermissionDenied)
}

// release gives the key free. It deletes the record, unless something of it has to be kept: the
// recovery points, and the payload's fingerprint if the function has run. Then the record says that
// it is free. Where etcd has no space, a fingerprint alone is not kept: a release has to pass.
func (a *Attempt) release(ctx context.Context, o *settlement) (err error, again bool) {
	s, steps := a.store, len(a.rec.Body) > 0
	r := a.rec
	r.State = record.AttemptReleased
	text := r.Encode()
	free := commit.Amendment{
		Key: a.entry.Record, Mod: a.mod, Then: []clientv3.Op{clientv3.OpDelete(a.entry.Record), clientv3.OpDelete(a.entry.Claim())},
		Mine: func(kv *mvccpb.KeyValue) bool { return kv == nil || o.ran && string(kv.Value) == text },
	}
	var res commit.Amending
	var lease *pooled
	if steps || o.ran {
		if lease, err = s.retain(a.set.retain).take(ctx, 1); err == nil {
			s.space.writes(1, len(text))
			keep := free
			keep.Then = []clientv3.Op{clientv3.OpPut(a.entry.Record, text, clientv3.WithLease(lease.id)), free.Then[1]}
			keep.Mine = func(kv *mvccpb.KeyValue) bool { return kv != nil && string(kv.Value) == text }
			res, err = commit.Amend(ctx, s.client, keep)
		}
	}
	if !steps && (!o.ran || errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace)) {
		lease = nil
		res, err = commit.Amend(ctx, s.client, free)
	}
	switch {
	case err != nil:
		return err, true
	case res.Outcome == commit.Amended:
		if lease == nil {
			return nil, false
		}
		err := s.prolong(ctx, s.retain(a.set.retain), lease, res, kept{entry: a.entry, text: text})
		return err, err != nil
	case res.Outcome == commit.LeaseGone:
		s.retain(a.set.retain).forget(lease)
		return rpctypes.ErrLeaseNotFound, true
	case res.Doubt && a.epoch.Valid() && errors.Is(a.Err(), ErrSettled):
		return nil, false // the claim stood until then, so it was this that took it away
	}
	return a.fenced(), false
}

// fenced is for an attempt whose record is another's, or nobody's. If nobody has taken over,
// its claim still stands, and would be in the way.
func (a *Attempt) fenced() error {
	a.store.sess.Background(a.drop)
	return ErrFenced
}
