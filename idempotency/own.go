package idempotency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// ownRecord is the record of an attempt in progress, as etcd has it. One writer at a time reads and changes it.
type ownRecord struct {
	*claim
	turn   turn            // held by the writer; it protects the next three
	rec    *record.Attempt // the record in etcd; it is replaced and never changed
	mod    int64           // the revision of its last change
	unsure string          // the record that an unanswered put may have written; "" if there is none

	note atomic.Pointer[string] // of rec
}

// set notes what etcd has. The caller holds the turn.
func (w *ownRecord) set(rec *record.Attempt, mod int64) {
	w.rec, w.mod = rec, mod
	w.note.Store(&rec.Note)
}

// put writes the record if it was not changed. If an answer is lost, a record that is one of mine counts as
// written by this call. The caller holds the turn.
func (w *ownRecord) put(ctx context.Context, text string, mine ...string) (commit.Amending, error) {
	return commit.Amend(ctx, w.store.sess.KV(), commit.Amendment{
		Key: w.entry.Record, Mod: w.mod, Then: []clientv3.Op{clientv3.OpPut(w.entry.Record, text, clientv3.WithLease(w.work.id))},
		Mine: func(kv *mvccpb.KeyValue) bool { return kv != nil && slices.Contains(mine, string(kv.Value)) },
	})
}

// regained takes over the revision of the record if found is what the attempt has written, put again as it is: by one that
// has taken back a claim over it, whose function was never called, or by what shuts out late copies of the attempt's own
// Txn. It reports whether it is. Copies of what was sent before are void then. The caller holds the turn.
func (w *ownRecord) regained(found *mvccpb.KeyValue) bool {
	if found == nil || string(found.Value) != w.rec.Encode() {
		return false
	}
	w.mod = found.ModRevision
	return true
}

// fencedError is the ErrFenced of a write of the attempt's record. found is what the record is, or nil.
type fencedError struct{ found *mvccpb.KeyValue }

func (e *fencedError) Error() string { return ErrFenced.Error() }
func (e *fencedError) Unwrap() error { return ErrFenced }

// ghost returns the revision of a record that says that the attempt works, after a write of it was fenced, or 0 if it does
// not say that. Such a record was put by hand, and would block the request as long as the session lives.
func (c *claim) ghost(err error) int64 {
	fenced, ok := errors.AsType[*fencedError](err)
	if !ok || fenced.found == nil || !strings.HasPrefix(string(fenced.found.Value), c.begun.Prefix()) {
		return 0
	}
	return fenced.found.ModRevision
}

// resolve finds out whether an unanswered put took effect, and keeps a copy that is still under way from taking
// effect. The caller holds the turn.
func (w *ownRecord) resolve(ctx context.Context) error {
	if w.unsure == "" {
		return nil
	}
	before := w.rec.Encode()
	res, err := w.put(ctx, before, w.unsure, before)
	if err != nil {
		return err
	}
	switch res.Outcome {
	case commit.Amended:
	case commit.LeaseGone:
		return w.gone()
	default:
		return &fencedError{res.Found}
	}
	now := w.rec
	if res.Found != nil && string(res.Found.Value) == w.unsure {
		found, _ := record.DecodeAttempt(res.Found.Value)
		now = &found
	}
	w.set(now, res.Mod)
	w.unsure = ""
	return nil
}

// change changes the record. ctx is the attempt's. The caller holds the turn.
func (w *ownRecord) change(ctx context.Context, change func(*record.Attempt) error) error {
	if err := w.resolve(ctx); err != nil {
		return err
	}
	r := *w.rec
	if err := change(&r); err != nil {
		return err
	}
	text := r.Encode()
	w.store.space.writes(1, len(text))
	var res commit.Amending
	doubt := false
	err := commit.Allowed(ctx, w.epoch.Valid, func() (err error) {
		res, err = w.put(ctx, text, text)
		doubt = doubt || res.Doubt
		return err
	})
	switch {
	case err != nil:
		if doubt { // otherwise what follows need not write first, which lack of space may keep it from
			w.unsure = text
		}
		if commit.TooLarge(err) {
			err = fmt.Errorf("%w: %w", ErrTooLarge, err)
		}
		return w.store.sess.Explain(joined(context.Cause(ctx), err))
	case res.Outcome == commit.Amended:
		w.set(&r, res.Mod)
		return nil
	case res.Outcome == commit.Overtaken && w.regained(res.Found):
		return w.change(ctx, change)
	case res.Outcome == commit.Overtaken:
		return &fencedError{res.Found}
	}
	return w.gone()
}

// gone ends all attempts whose records are on the lease of the record, after etcd has answered a put that it does not exist:
// other attempts may begin. It returns errRecordGone.
func (w *ownRecord) gone() error {
	w.work.kept.end(errRecordGone)
	return errRecordGone
}

// step returns the value of a step that was recorded. It finds out first whether one was whose put is in doubt. ctx
// is the attempt's. The caller holds the turn.
func (w *ownRecord) step(ctx context.Context, name string) ([]byte, bool, error) {
	if err := w.resolve(ctx); err != nil {
		return nil, false, w.store.sess.Explain(joined(context.Cause(ctx), err))
	}
	steps, ok := record.DecodeSteps(w.rec.Body)
	if !ok {
		return nil, false, ErrUnreadable
	}
	for _, st := range steps {
		if st.Name == name {
			v, err := w.store.reader.codecs.decode(st.Value, st.Codec, w.boundStep(name))
			return v, err == nil, err
		}
	}
	return nil, false, nil
}
