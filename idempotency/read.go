package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
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
	known   int64           // greatest revision in an answer of a majority
	knownAt moment          // when the latest such answer was asked for
	taken   <-chan struct{} // closed when the history of these was taken back
}

func newReader(sess *engine.Session, c codecs, o *outage.Detector[struct{}]) *reader {
	return &reader{sess: sess, codecs: c, outage: o, serial: newGather(sess, clientv3.WithSerializable()), linear: newGather(sess), taken: sess.History().Over()}
}

// saw records the revision of an answer to a request that no member can answer alone, sent at that
// time.
func (r *reader) saw(revision int64, sent moment) {
	r.outage.Answered()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.present()
	r.known = max(r.known, revision)
	if sent.After(r.knownAt.Time) {
		r.knownAt = sent
	}
}

// present forgets what was known of a history that was taken back. r.mu is held.
func (r *reader) present() {
	select {
	case <-r.taken:
		r.known, r.knownAt, r.taken = 0, moment{}, r.sess.History().Over()
	default:
	}
}

// floor returns the least revision that a read by one member may have. ok is false if the latest
// known revision is too old for that.
func (r *reader) floor() (revision int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.present()
	return r.known, r.known > 0 && aged(r.knownAt) < r.sess.TTL()/3
}

// state is what etcd has for a request.
type state struct {
	kv       *mvccpb.KeyValue // the record, or nil
	rec      record.Attempt
	bad      bool   // the record cannot be read
	live     bool   // a majority has confirmed that the attempt which it names as working is in progress
	majority bool   // a majority has confirmed it
	sent     moment // before the read was sent
}

func (st state) mod() int64 {
	if st.kv == nil {
		return 0
	}
	return st.kv.ModRevision
}

// owner returns the lease that the record names as that of its attempt, or 0.
func (st state) owner() int64 {
	if st.working() {
		return st.rec.Lease
	}
	return 0
}

func (st state) prints() prints { return prints{payload: st.rec.Print, also: st.rec.Also} }

func (st state) finished() bool {
	return st.kv != nil && !st.bad && (st.rec.State == record.AttemptDone || st.rec.State == record.AttemptFailed)
}

// working reports whether the record names an attempt that has not ended. It lives while its session exists.
func (st state) working() bool {
	return st.kv != nil && !st.bad && st.rec.State == record.AttemptWorking
}

// lost reports whether the latest attempt was lost. Only a majority knows it.
func (st state) lost() bool {
	return st.working() && !st.live || st.kv != nil && !st.bad && st.rec.State == record.AttemptLost
}

// resolved reports whether an operator has recorded the outcome, of an attempt that was lost.
func (st state) resolved() bool { return st.finished() && st.rec.By != "" }

// take takes over the record, if there is one.
func (st *state) take(kvs []*mvccpb.KeyValue) {
	if len(kvs) > 0 {
		rec, ok := record.DecodeAttempt(kvs[0].Value)
		st.kv, st.rec, st.bad = kvs[0], rec, !ok
	}
}

// read reads the state of a request. Without majority one member may answer, if its revision is not
// below the floor: the reader has seen a later revision within a third of the TTL. A member that lags
// behind may still have a record that was deleted.
//
// Whether an attempt lives follows from its record and the presence key of its session, read as of one revision: in
// between it could record its outcome and end its session. owner is the lease that the record names, as far as it is
// known, or 0. With an error, read returns a record of which it is not known whether its attempt lives, if it has found one.
func (r *reader) read(ctx context.Context, e keyspace.Entry, majority bool, owner int64) (state, error) {
	floor, known := r.floor()
	majority = majority || !known
	var seen state // a record whose presence key has not been read
	var pause commit.Backoff
	for {
		g, presence := r.serial, ""
		if majority {
			g, presence = r.linear, r.presence(owner)
		}
		got := g.read(ctx, e.Record, presence)
		st, err := state{majority: majority, sent: got.sent}, got.err
		switch {
		case err == nil && !majority && got.revision < floor:
			majority = true // the member lags behind
			continue
		case err == nil:
			if majority {
				r.saw(got.revision, st.sent)
			}
			st.take(got.kvs)
			if majority && st.working() && st.rec.Lease != owner {
				seen, owner = st, st.rec.Lease
				continue
			}
			st.live = st.working() && got.present
			return st, nil
		case !commit.Transient(err):
			return seen, err
		}
		majority = true
		if err := pause.Wait(ctx, err); err != nil {
			return seen, err
		}
	}
}

// presence returns the presence key of the session on a lease, or "" for 0.
func (r *reader) presence(lease int64) string {
	if lease == 0 {
		return ""
	}
	return r.sess.Space().Session(lease).Alive()
}

// ended returns the condition that the session of a lost attempt does not exist. An attempt that was given up, and one
// that has ended, have none.
func (r *reader) ended(st state) []clientv3.Cmp {
	if st.owner() == 0 {
		return nil
	}
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(r.presence(st.owner())), "=", 0)}
}

// join finds out which of some records, which a majority has, name an attempt in progress: by reads of their revisions
// and of the presence keys as of one revision. A record that has changed is read again; the state of one that was
// deleted has none.
func (r *reader) join(ctx context.Context, entries []keyspace.Entry, states []state) error {
	var all []int
	for i, st := range states {
		if st.owner() != 0 {
			all = append(all, i)
		}
	}
	for some := range slices.Chunk(all, perRead) {
		var ops []clientv3.Op
		for _, i := range some {
			ops = append(ops, clientv3.OpGet(entries[i].Record, clientv3.WithKeysOnly()), clientv3.OpGet(r.presence(states[i].rec.Lease), clientv3.WithKeysOnly()))
		}
		resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
			return r.sess.KV().Txn(call).Then(ops...).Commit()
		})
		if err != nil {
			return err
		}
		for n, i := range some {
			is, owner := resp.Responses[2*n].GetResponseRange().Kvs, resp.Responses[2*n+1].GetResponseRange().Kvs
			if len(is) > 0 && is[0].ModRevision == states[i].mod() {
				states[i].live = len(owner) > 0
			} else if states[i], err = r.read(ctx, entries[i], true, states[i].rec.Lease); err != nil {
				return err
			}
		}
	}
	return nil
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
