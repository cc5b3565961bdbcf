package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// state is what stands at a key.
type state struct {
	kv    *mvccpb.KeyValue // the record, or nil
	rec   record.Attempt
	bad   bool   // the record cannot be read
	claim bool   // an attempt is in progress
	sure  bool   // it was read from a majority
	sent  moment // before it was asked for
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

// lost tells whether an attempt was lost.
func (st state) lost() bool {
	return st.kv != nil && !st.bad && st.rec.State == record.AttemptWorking && !st.claim
}

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

// read reads a key. Sure has a majority asked; otherwise one member may answer, if what it
// says is young enough: it may be a record of before the key was deleted and used again,
// which is refused when the store has seen a later revision within a third of the TTL.
func (s *Store) read(ctx context.Context, e keyspace.Entry, sure bool) (state, error) {
	floor, known := s.floor()
	sure = sure || !known
	var pause commit.Backoff
	for {
		g := s.near
		if sure {
			g = s.far
		}
		r := g.read(ctx, e.Record)
		st, err := state{sure: sure, sent: r.sent}, r.err
		switch {
		case err == nil && !sure && r.revision < floor:
			sure = true // that member lags behind
			continue
		case err == nil:
			if sure {
				s.saw(r.revision, st.sent)
			}
			st.take(r.kvs, e)
			return st, nil
		case !commit.Transient(err):
			return st, err
		}
		sure = true
		if err := pause.Wait(ctx, err); err != nil {
			return st, err
		}
	}
}

// bound is the about of a Codec for a result.
func bound(e keyspace.Entry) string { return e.Ref }

// load returns the outcome that a record holds, or nil if parts of it are gone.
func (s *Store) load(ctx context.Context, e keyspace.Entry, st state) (*Outcome, error) {
	r := st.rec
	out := &Outcome{Failed: r.State == record.AttemptFailed, Failure: r.Error, Omitted: r.Omitted, Attempt: r.Number, Token: r.Token, print: st.prints()}
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

// parts reads a result that did not fit into its record.
func (s *Store) parts(ctx context.Context, e keyspace.Entry, r record.Attempt) ([]byte, error) {
	if r.Size > maxResult {
		return nil, fmt.Errorf("%w: a result of %d bytes", ErrUnreadable, r.Size)
	}
	all := make([]byte, 0, r.Size)
	for n := range r.Parts {
		resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) {
			return s.client.Get(call, e.Part(r.Token, n))
		})
		if err != nil || len(resp.Kvs) == 0 {
			return nil, err
		}
		all = append(all, resp.Kvs[0].Value...)
		if len(all) > r.Size {
			return nil, fmt.Errorf("%w: its result is longer than %d bytes", ErrUnreadable, r.Size)
		}
	}
	if sum := sha256.Sum256(all); len(all) != r.Size || !bytes.Equal(sum[:], r.Sum) {
		return nil, fmt.Errorf("%w: the parts of its result are not what was written", ErrUnreadable)
	}
	return all, nil
}
