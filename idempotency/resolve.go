package idempotency

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
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
// Response.Encode for idemhttp, those of Encode for idemgrpc.
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
// EvenIfAlive.
func NotDone() Resolution { return Resolution{state: record.AttemptReleased} }

// text returns the record of a request with its resolution.
func (w Resolution) text(s *Store, e keyspace.Entry, st state) (string, error) {
	r := st.rec.Replaced()
	r.State, r.EndMS, r.By, r.Token = w.state, time.Now().UnixMilli(), s.sess.Owner(), st.mod()
	if r.State != record.AttemptReleased {
		r.Body, r.Size, r.Error = nil, 0, record.Text(w.failure)
	}
	if w.value == nil {
		return r.Encode(), nil
	}
	if err := w.check(s, st.rec); err != nil {
		return "", err
	}
	stored, codec, err := s.encode(w.value, bound(e))
	if err != nil {
		return "", err
	}
	if len(stored) > inline {
		return "", fmt.Errorf("%w: the result has %d bytes, more than %d", ErrTooLarge, len(stored), inline)
	}
	r.Body, r.Codec, r.Size = stored, codec, len(stored)
	return r.Encode(), nil
}

// check returns an error for a result that duplicates of the request could not get.
func (w Resolution) check(s *Store, r record.Attempt) error {
	if err := forms.Check(r.Via, w.value); err != nil {
		return invalid("WasDone: %w", err)
	}
	if s.opts.reads(r.Codec) {
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
// Record.Revision that the caller has looked at: if another attempt has begun or ended since, they
// return ErrConflict and change nothing.
func OnlyRevision(revision int64) ChangeOption {
	return func(c *change) { c.only = &revision }
}

// EvenIfAlive lets Delete, and Resolve with NotDone, let a request be executed again although the process of its
// lost attempt lives (Record.Alive): the caller knows that nothing of that attempt is at work any more.
func EvenIfAlive() ChangeOption { return func(c *change) { c.evenIfAlive = true } }

// changeOf returns the options, or ErrInvalid for one that is nil.
func changeOf(opts []ChangeOption) (c change, err error) {
	for i, o := range opts {
		if o == nil {
			return c, invalid("Option %d is nil", i+1)
		}
		o(&c)
	}
	return c, nil
}

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
		return ErrUnreadable
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

// spares returns ErrAlive if the process of a lost attempt lives, unless the options say that this does not count.
// The absence of its session is final, so a look at it after the record is enough.
func (c change) spares(ctx context.Context, s *Store, st state) error {
	if c.evenIfAlive || !st.lost() {
		return nil
	}
	alive, err := sessions(ctx, s, []int64{st.rec.Lease})
	if err == nil && alive[st.rec.Lease] {
		err = fmt.Errorf("%w: attempt %d by %q may still be working (EvenIfAlive)", ErrAlive, st.rec.Number, st.rec.Owner)
	}
	return err
}

// sessionsAtOnce is how many sessions one request looks for. etcd accepts 128 operations in a Txn.
const sessionsAtOnce = 100

// sessions returns which sessions exist, by their leases.
func sessions(ctx context.Context, s *Store, leases []int64) (map[int64]bool, error) {
	exist := map[int64]bool{}
	for len(leases) > 0 {
		page := leases[:min(len(leases), sessionsAtOnce)]
		leases = leases[len(page):]
		var ops []clientv3.Op
		for _, lease := range page {
			ops = append(ops, clientv3.OpGet(s.sess.Space().Session(lease).Alive(), clientv3.WithCountOnly()))
		}
		resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
			return s.client.Txn(call).Then(ops...).Commit()
		})
		if err != nil {
			return nil, err
		}
		for i, lease := range page {
			exist[lease] = resp.Responses[i].GetResponseRange().Count > 0
		}
	}
	return exist, nil
}

// findAlive sets Alive of the records of lost attempts.
func findAlive(ctx context.Context, s *Store, records []Record) error {
	exist := map[int64]bool{}
	var leases []int64
	for _, r := range records {
		if _, known := exist[r.lease]; r.State == Unknown && !known {
			exist[r.lease] = false
			leases = append(leases, r.lease)
		}
	}
	exist, err := sessions(ctx, s, leases)
	for i := range records {
		r := &records[i]
		r.Alive = r.State == InProgress || r.State == Unknown && exist[r.lease]
	}
	return err
}
