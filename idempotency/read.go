package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/outage"
	"github.com/etcdkit/etcdkit/internal/record"
)

// reader reads what etcd has for requests. It knows how recent an answer of one member has to be. It is
// safe for concurrent use.
type reader struct {
	sess   *engine.Session
	codecs codecs
	outage *outage.Detector[struct{}] // learns of each answer of a majority
	serial *gather                    // serializable reads, which one member answers
	linear *gather                    // linearizable reads, which a majority confirms

	mu      sync.Mutex
	known   int64  // greatest revision in an answer of a majority
	knownAt moment // when the latest such answer was asked for
}

func newReader(sess *engine.Session, c codecs, o *outage.Detector[struct{}]) *reader {
	return &reader{sess: sess, codecs: c, outage: o, serial: newGather(sess, clientv3.WithSerializable()), linear: newGather(sess)}
}

// saw records the revision of an answer to a request that no member can answer alone, sent at that
// time.
func (r *reader) saw(revision int64, sent moment) {
	r.outage.Answered()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = max(r.known, revision)
	if sent.After(r.knownAt.Time) {
		r.knownAt = sent
	}
}

// floor returns the least revision that a read by one member may have. ok is false if the latest
// known revision is too old for that.
func (r *reader) floor() (revision int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known, r.known > 0 && aged(r.knownAt) < r.sess.TTL()/3
}

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
// below the floor: the reader has seen a later revision within a third of the TTL. A member that lags
// behind may still have a record that was deleted.
func (r *reader) read(ctx context.Context, e keyspace.Entry, majority bool) (state, error) {
	floor, known := r.floor()
	majority = majority || !known
	var pause commit.Backoff
	for {
		g := r.serial
		if majority {
			g = r.linear
		}
		got := g.read(ctx, e.Record)
		st, err := state{majority: majority, sent: got.sent}, got.err
		switch {
		case err == nil && !majority && got.revision < floor:
			majority = true // the member lags behind
			continue
		case err == nil:
			if majority {
				r.saw(got.revision, st.sent)
			}
			st.take(got.kvs, e)
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
func (r *reader) load(ctx context.Context, e keyspace.Entry, st state) (*Outcome, error) {
	rec := st.rec
	out := &Outcome{Failed: rec.State == record.AttemptFailed, Failure: rec.Error, Omitted: rec.Omitted, Attempt: rec.Number, Token: rec.Token, Resolved: rec.By, print: st.prints()}
	stored := rec.Body
	if rec.Parts > 0 {
		var err error
		if stored, err = r.parts(ctx, e, rec); err != nil || stored == nil {
			return nil, err
		}
	}
	if !rec.Omitted && len(stored) > 0 {
		plain, err := r.codecs.decode(stored, rec.Codec, bound(e))
		if err != nil {
			return nil, err
		}
		out.Value = plain
	}
	return out, nil
}

// parts reads a result that is stored in parts, and returns nil if one of them does not exist.
func (r *reader) parts(ctx context.Context, e keyspace.Entry, rec record.Attempt) ([]byte, error) {
	if rec.Size > maxResult {
		return nil, fmt.Errorf("%w: its result has %d bytes", ErrUnreadable, rec.Size)
	}
	all := make([]byte, 0, rec.Size)
	for n := range rec.Parts {
		kvs, err := r.sess.Get(ctx, e.Part(rec.Token, n))
		if err != nil || len(kvs) == 0 {
			return nil, err
		}
		all = append(all, kvs[0].Value...)
		if len(all) > rec.Size {
			return nil, fmt.Errorf("%w: its result is longer than %d bytes", ErrUnreadable, rec.Size)
		}
	}
	if sum := sha256.Sum256(all); len(all) != rec.Size || !bytes.Equal(sum[:], rec.Sum) {
		return nil, fmt.Errorf("%w: the parts of its result have another checksum", ErrUnreadable)
	}
	return all, nil
}
