package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// state is what etcd has for a request.
type state struct {
	kv       *mvccpb.KeyValue // the record, or nil
	rec      record.Attempt
	bad      bool   // the record cannot be read
	claim    bool   // an attempt is in progress
	majority bool   // a majority has confirmed it
	sent     moment // before the read was sent
}

func (st state) mod() int64 {
	if st.kv == nil {
		return 0
	}
	return st.kv.ModRevision
}

func (st state) prints() prints { return prints{payload: st.rec.Print, also: st.rec.Also} }

func (st state) finished() bool {
	return st.kv != nil && !st.bad && (st.rec.State == record.AttemptDone || st.rec.State == record.AttemptFailed)
}

// lost reports whether the latest attempt was lost.
func (st state) lost() bool {
	return st.kv != nil && !st.bad && st.rec.State == record.AttemptWorking && !st.claim
}

// resolved reports whether an operator has recorded the outcome, of an attempt that was lost.
func (st state) resolved() bool { return st.finished() && st.rec.By != "" }

func (st *state) take(kvs []*mvccpb.KeyValue, e keyspace.Entry) {
	for _, kv := range kvs {
		switch string(kv.Key) {
		case e.Record:
			st.kv = kv
			rec, ok := record.DecodeAttempt(kv.Value)
			st.rec, st.bad = rec, !ok
		case e.Claim():
			st.claim = true
		}
	}
}

// read reads the state of a request. Without majority one member may answer, if its revision is not
// below the floor: the store has seen a later revision within a third of the TTL. A member that lags
// behind may still have a record that was deleted.
func (s *Store) read(ctx context.Context, e keyspace.Entry, majority bool) (state, error) {
	floor, known := s.floor()
	majority = majority || !known
	var pause commit.Backoff
	for {
		g := s.serial
		if majority {
			g = s.linear
		}
		r := g.read(ctx, e.Record)
		st, err := state{majority: majority, sent: r.sent}, r.err
		switch {
		case err == nil && !majority && r.revision < floor:
			majority = true // the member lags behind
			continue
		case err == nil:
			if majority {
				s.saw(r.revision, st.sent)
			}
			st.take(r.kvs, e)
			return st, nil
		case !commit.Transient(err):
			return st, err
		}
		majority = true
		if err := pause.Wait(ctx, err); err != nil {
			return st, err
		}
	}
}

// bound returns the parameter about of a Codec for the result of a request.
func bound(e keyspace.Entry) string { return e.Ref }

// load returns the outcome in a record, or nil if parts of its result do not exist any more.
func (s *Store) load(ctx context.Context, e keyspace.Entry, st state) (*Outcome, error) {
	r := st.rec
	out := &Outcome{Failed: r.State == record.AttemptFailed, Failure: r.Error, Omitted: r.Omitted, Attempt: r.Number, Token: r.Token, Resolved: r.By, print: st.prints()}
	stored := r.Body
	if r.Parts > 0 {
		var err error
		if stored, err = s.parts(ctx, e, r); err != nil || stored == nil {
			return nil, err
		}
	}
	if !r.Omitted && len(stored) > 0 {
		plain, err := s.decode(stored, r.Codec, bound(e))
		if err != nil {
			return nil, err
		}
		out.Value = plain
	}
	return out, nil
}

// parts reads a result that is stored in parts, and returns nil if one of them does not exist.
func (s *Store) parts(ctx context.Context, e keyspace.Entry, r record.Attempt) ([]byte, error) {
	if r.Size > maxResult {
		return nil, fmt.Errorf("%w: its result has %d bytes", ErrUnreadable, r.Size)
	}
	all := make([]byte, 0, r.Size)
	for n := range r.Parts {
		kvs, err := s.sess.Get(ctx, e.Part(r.Token, n))
		if err != nil || len(kvs) == 0 {
			return nil, err
		}
		all = append(all, kvs[0].Value...)
		if len(all) > r.Size {
			return nil, fmt.Errorf("%w: its result is longer than %d bytes", ErrUnreadable, r.Size)
		}
	}
	if sum := sha256.Sum256(all); len(all) != r.Size || !bytes.Equal(sum[:], r.Sum) {
		return nil, fmt.Errorf("%w: the parts of its result have another checksum", ErrUnreadable)
	}
	return all, nil
}
