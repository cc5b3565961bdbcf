package idempotency

import (
	"context"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/forms"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// What an operator says about a request, and when it may be recorded.

// Resolution is what an operator has found out about a request whose attempt was lost: WasDone,
// HasFailed or NotDone. The zero value is ErrInvalid.
type Resolution struct {
	state   string // of the record; "" is none of the three
	value   []byte // nil without one
	failure string
}

// WasDone resolves that the request was done, with this result: JSON for Do, the bytes of
// Response.Encode for idemhttp, or of its EncodeMessage and EncodeFailure for a call of gRPC, gRPC-Web or Connect; those
// of Encode for idemgrpc. A member that the result's type of Do does not have is ErrUnreadable for duplicates.
func WasDone(result []byte) Resolution {
	return Resolution{state: record.AttemptDone, value: append([]byte{}, result...)}
}

// HasFailed resolves that the request failed for good: duplicates get a *FailedError. The text is
// stored in plain text, whatever the Codec.
func HasFailed(failure string) Resolution {
	return Resolution{state: record.AttemptFailed, failure: failure}
}

// NotDone resolves that nothing was done: the next call runs the function. The recovery points are
// kept. While the attempt's process lives it may still be working, so NotDone is ErrAlive then, without
// EvenIfAlive: see Record.Alive for what shows that.
func NotDone() Resolution { return Resolution{state: record.AttemptReleased} }

// given returns ErrInvalid for none of the three.
func (w Resolution) given() error {
	if w.state == "" {
		return invalid("the Resolution is empty (WasDone, HasFailed or NotDone)")
	}
	return nil
}

// text returns the record of a request with its resolution.
func (w Resolution) text(ctx context.Context, o operator) (string, error) {
	was := o.st.rec
	r := was.Replaced()
	r.State, r.EndMS, r.By, r.Token = w.state, time.Now().UnixMilli(), engine.Author(ctx, o.sess), o.st.mod()
	if r.State != record.AttemptReleased {
		r.Body, r.Size, r.Error = nil, 0, record.Text(w.failure)
	}
	if w.value == nil {
		return r.Encode(), nil
	}
	if err := w.check(o.reader.codecs, was); err != nil {
		return "", err
	}
	stored, err := o.reader.codecs.encode(was.Codec, w.value, bound(o.entry)) // with another one the services may not read it
	if err != nil {
		return "", err
	}
	if len(stored) > inline {
		return "", fmt.Errorf("%w: the result has %d bytes, more than %d", ErrTooLarge, len(stored), inline)
	}
	r.Body, r.Codec, r.Size = stored, was.Codec, len(stored)
	return r.Encode(), nil
}

// check returns an error for a result that duplicates of the request could not get.
func (w Resolution) check(known codecs, r record.Attempt) error {
	if err := forms.Check(r.Via, r.Returns, w.value); err != nil {
		return invalid("WasDone: %w", err)
	}
	if known.reads(r.Codec) {
		return nil
	}
	with, know := "no Codec", "Options.OldCodecs has no Plain"
	if r.Codec != "" {
		with, know = fmt.Sprintf("Codec %q", r.Codec), "it is neither Options.Codec nor in Options.OldCodecs"
	}
	return invalid("WasDone: the request was begun by a store with %s, which this Store does not know (%s), so the services could not read its result", with, know)
}

// ChangeOption configures a call of Delete or Resolve.
type ChangeOption func(*change)

// change is the options of a call of Delete or Resolve.
type change struct {
	only        *int64
	evenIfAlive bool
}

// OnlyRevision lets Delete or Resolve change a record only as it is at that revision, which is the
// Record.Revision that the caller has looked at: if another attempt has begun or ended since, or another operator has
// changed it, they return ErrConflict.
func OnlyRevision(revision int64) ChangeOption {
	return func(c *change) { c.only = &revision }
}

// EvenIfAlive lets Delete, and Resolve with NotDone, let a request be executed again although the process of its
// lost attempt lives (Record.Alive): the caller knows that nothing of that attempt is at work any more.
func EvenIfAlive() ChangeOption { return func(c *change) { c.evenIfAlive = true } }

// allows returns ErrConflict for a record that the options exclude.
func (c change) allows(st state) error {
	if c.only != nil && *c.only != st.mod() {
		return fmt.Errorf("%w: the record has changed since revision %d; its revision is %d", ErrConflict, *c.only, st.mod())
	}
	return nil
}

// resolves returns why a record that is not in progress is not resolved in that way, or nil.
func (c change) resolves(what Resolution, st state) error {
	byOperator := !st.bad && st.rec.By != ""
	is := describe(keyspace.Entry{}, st).State
	switch {
	case st.bad:
		return fmt.Errorf("%w: %w", ErrUnreadable, record.Why(string(st.kv.Key), st.kv.Value))
	case st.lost():
		return nil
	case !byOperator:
		return fmt.Errorf("%w: the request is %v", ErrConflict, is)
	case what.state == record.AttemptReleased:
		return fmt.Errorf("%w: the request is %v, as %q has recorded; that is not taken back to NotDone, since duplicates may have got it", ErrConflict, is, st.rec.By)
	case c.only == nil:
		return fmt.Errorf("%w: the request is %v, as %q has recorded; to correct that, pass OnlyRevision(%d)", ErrConflict, is, st.rec.By, st.mod())
	}
	return nil
}

// spares returns ErrAlive if the process of a lost attempt lives, unless the options say that this does not count. That
// of a record of a later version may, and so may one beside a session of a later version.
// It looks after the record was read: a session that the attempt's process has lost does not come back.
func (c change) spares(ctx context.Context, sess *engine.Session, st state) error {
	if !c.evenIfAlive && st.bad && record.Later(st.kv.Value) > 0 {
		return fmt.Errorf("%w, as far as can be seen: %w; an attempt may still be working (EvenIfAlive)", ErrAlive, record.Why(string(st.kv.Key), st.kv.Value))
	}
	if c.evenIfAlive || !st.lost() && !st.resolved() {
		return nil
	}
	exist, err := readSessions(ctx, sess)
	if err != nil {
		return err
	}
	switch exist.shows(begunIn(st.rec)) {
	case present:
		return fmt.Errorf("%w: attempt %d by %q may still be working (EvenIfAlive)", ErrAlive, st.rec.Number, st.rec.Owner)
	case renewed:
		return fmt.Errorf("%w: the session of attempt %d, %q, was lost and exists again in the same process, which may still be working (EvenIfAlive)", ErrAlive, st.rec.Number, st.rec.Owner)
	case possible:
		return fmt.Errorf("%w, as far as can be seen: %w; attempt %d by %q may still be working (EvenIfAlive)", ErrAlive, exist.unread, st.rec.Number, st.rec.Owner)
	}
	return nil
}
