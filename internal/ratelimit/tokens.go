package ratelimit

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/rate"
	"github.com/etcdkit/etcdkit/internal/record"
)

// The tokens of a slow rate are stored (docs/design/0044-edges.md): the process that gains its only share reads them, and
// stores them when it returns the share, so that they go to the next process. Meanwhile it takes them as those of any
// share, once it has noted that in etcd.

const (
	// noteBefore is how long before the next token a process notes that it takes tokens.
	noteBefore = 2 * stepEvery
)

// known is what a process knows of the stored tokens.
type known struct {
	of    *Share           // the share under which they were read; nil: they were not
	rev   int64            // of the record; 0 if there is none
	lease clientv3.LeaseID // by which the time since the record is measured
	until time.Time        // until when the process may take tokens; zero: there is no note of that
	// unsure are the leases of writes without an answer: the record may be on one of them by now.
	unsure []clientv3.LeaseID
}

var (
	// errOvertaken: another process has written the record.
	errOvertaken = errors.New("the tokens were stored by another process")
	// errExpired: a write took longer than its lease lasts. It has stored nothing.
	errExpired = errors.New("the lease of the tokens expired before etcd stored them")
	// errRateChanged: the tokens were counted by a rate that is not stored any more.
	errRateChanged = errors.New("the rate was changed")
)

// settle reads the stored tokens if the process has gained the share of a slow rate, and notes that it takes tokens if
// there is one soon. It asks etcd, so s.mu is not held.
func (s *Shares) settle(ctx context.Context) {
	for range 3 { // another process may have written in between
		s.mu.Lock()
		load, note := s.due(time.Now())
		if !load && !note {
			s.trouble.tokens = nil
			s.mu.Unlock()
			return
		}
		d, store, at, share := s.division, s.stored(s.revision), s.tokens, s.held[0]
		s.mu.Unlock()
		var left float64
		var err error
		if load {
			at, left, err = store.read(ctx, d, at.unsure)
		} else {
			at, err = store.write(ctx, d, rate.StoredTokens{Grace: s.Session.TTL() + store.slack()}, at)
		}
		overtaken := errors.Is(err, errOvertaken)
		if at.of = share; overtaken {
			at, err = known{}, nil
		}
		s.mu.Lock()
		if len(s.held) != 1 || s.held[0] != share || errors.Is(err, errRateChanged) { // it was lost, or the next step reads the rate
			s.mu.Unlock()
			return
		}
		if overtaken { // the other process may have taken what this one has counted
			s.bucket.Void(time.Now())
		}
		if err != nil {
			s.tokens.unsure = at.unsure
			s.unsettled(ctx, err)
			s.mu.Unlock()
			return
		}
		s.trouble.tokens = nil
		if s.tokens = at; load {
			s.bucket.Load(time.Now(), left)
		}
		s.serve()
		s.refuseLate(0)
		s.mu.Unlock()
	}
}

// due returns what settle has to do.
func (s *Shares) due(now time.Time) (load, note bool) {
	if len(s.held) != 1 || !s.division.Slow() {
		return false, false
	}
	if s.tokens.of != s.held[0] {
		return true, false
	}
	next, _ := s.bucket.Next(now)
	return false, next <= noteBefore && now.After(s.tokens.until.Add(-s.Session.TTL()/2))
}

// unsettled ends the calls that wait, if etcd has refused what settle asks for, or its answer is of a later release, and the
// process may take no token. If etcd does not answer, the next step asks again.
func (s *Shares) unsettled(ctx context.Context, err error) {
	_, later := errors.AsType[record.UnreadableError](err)
	if ctx.Err() != nil || !later && commit.Transient(err) {
		return
	}
	if s.trouble.tokens = s.Session.Explain(err); !s.takes(time.Now()) {
		s.fail(s.trouble.tokens)
	}
}

// takes reports whether the process may take tokens of the share of a slow rate: others know by its note.
func (s *Shares) takes(now time.Time) bool {
	return !s.division.Slow() || now.Before(s.tokens.until)
}

// leftover is what a process leaves of the tokens of a slow rate.
type leftover struct {
	store  store
	of     rate.Division
	tokens float64
	at     known
}

// leaving returns what the process leaves if it returns all of its shares now, or nil: the record is right as it is, since the
// process has noted nothing, or the process does not know whether it still has the share, so the record says that it may have
// taken all.
func (s *Shares) leaving(now time.Time) *leftover {
	noted := !s.tokens.until.IsZero() || len(s.tokens.unsure) > 0
	if len(s.held) != 1 || !s.division.Slow() || s.tokens.of != s.held[0] || !noted || !now.Before(s.fresh) || !s.leases() {
		return nil
	}
	return &leftover{s.stored(s.revision), s.division, s.bucket.Left(now), s.tokens}
}

// save stores what the process leaves.
func (l *leftover) save(ctx context.Context) {
	if l != nil {
		_, _ = l.store.write(ctx, l.of, rate.StoredTokens{Left: l.tokens}, l.at)
	}
}

// store is where the tokens of one slow rate are stored.
type store struct {
	sess  *engine.Session
	keys  keyspace.Tokens
	limit string
	rev   int64 // of the record of the rate by which the tokens are counted: tokens are written only while that is stored
}

func (s *Shares) stored(rate int64) store {
	return store{s.Session, s.Session.Space().Tokens(s.Queue.Name), s.Queue.Keys.Limit, rate}
}

// slack is for the difference between the clocks of a process and of etcd, within a note: what the session leaves for it
// within its lease.
func (t store) slack() time.Duration { return t.sess.Margin() }

// read returns the record, and how many tokens there are at least. Without a record no token was ever taken. A record that
// measures less time than d needs, or that is damaged, is replaced: otherwise processes that live for seconds, and take no
// token, would each find the same. unsure are those of known, and so they are after an error.
func (t store) read(ctx context.Context, d rate.Division, unsure []clientv3.LeaseID) (at known, left float64, err error) {
	at.unsure = unsure
	resp, err := t.sess.Read(ctx, t.keys.Range, clientv3.WithPrefix())
	if err != nil {
		return at, 0, err
	}
	var rec, clock *mvccpb.KeyValue
	for _, kv := range resp.Kvs {
		switch string(kv.Key) {
		case t.keys.Left:
			rec = kv
		case t.keys.Timer:
			clock = kv
		}
	}
	if rec == nil {
		return at, float64(d.Burst), nil
	}
	at.rev = rec.ModRevision
	r, ok := record.DecodeTokens(rec.Value)
	if !ok && record.Later(rec.Value) > 0 {
		return at, 0, record.Why(string(rec.Key), rec.Value) // it is not replaced
	}
	if !ok {
		r = record.Tokens{}
	}
	at.lease = clientv3.LeaseID(r.Lease)
	stored := rate.StoredTokens{Left: r.Left, Grace: time.Duration(r.GraceMS) * time.Millisecond}
	measured := time.Duration(r.TTL) * time.Second
	passed := measured
	if ok && clock != nil {
		if passed, err = t.passed(ctx, at.lease); err != nil {
			return at, 0, err
		}
	}
	now := d.Again(stored, passed)
	if d.Outlasts(stored, measured) {
		if at, err = t.write(ctx, d, now, at); err != nil {
			return at, 0, err
		}
		at.until = time.Time{} // it is no note
	}
	return at, now.Left, nil
}

// remeasure has the time since the stored tokens count for a slow rate that was just stored, also while no process has the
// share. If that fails, it counts from when the next process reads them.
func (s *Shares) remeasure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.Session.ReleaseTimeout())
	defer cancel()
	l, ok, err := s.Queue.Limit.Read(ctx)
	if err != nil || !ok {
		return
	}
	if d, err := divisionOf(l.N, l.Rate); err == nil && d.Slow() {
		_, _, _ = s.stored(l.Revs.Own).read(ctx, d, nil)
	}
}

// passed returns how long ago a lease was granted, at least. A member of etcd that does not know the lease knows nothing:
// only the key of the clock, which was read in etcd's order, says that the lease has expired.
func (t store) passed(ctx context.Context, lease clientv3.LeaseID) (time.Duration, error) {
	ttl, err := commit.Read(ctx, func(call context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return t.sess.Etcd().TimeToLive(call, lease)
	})
	if err != nil || ttl.TTL < 0 {
		return 0, err
	}
	return time.Duration(max(0, ttl.GrantedTTL-ttl.TTL-1)) * time.Second, nil // the rest is in whole seconds, rounded down
}

// write stores the tokens on a new lease, in place of the record that was read or written, or of one that an earlier write
// without an answer has stored. It returns errOvertaken if the record is another one, and errRateChanged if the rate by which
// the tokens are counted is not the one that is stored. After errors but errOvertaken was is still right: it is returned, with
// the lease among the unsure ones if the tokens may be stored on it, now or later.
func (t store) write(ctx context.Context, d rate.Division, stored rate.StoredTokens, was known) (at known, err error) {
	call, cancel := commit.Call(ctx)
	defer cancel()
	sent := time.Now()
	lease, granted, err := engine.GrantLease(call, t.sess, d.Fills(stored).Truncate(time.Second))
	if err != nil {
		return was, err
	}
	rec := record.Tokens{
		Left: stored.Left, Lease: int64(lease), TTL: int64(granted / time.Second), GraceMS: stored.Grace.Milliseconds(),
		By: t.sess.Owner(), AtMS: time.Now().UnixMilli(),
	}
	put := commit.Amendment{
		Key: t.keys.Left, Mod: was.rev, Mine: func(kv *mvccpb.KeyValue) bool { return leaseOf(kv) == lease },
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(t.limit), "=", t.rev)},
		Then: []clientv3.Op{clientv3.OpPut(t.keys.Left, rec.Encode()), clientv3.OpPut(t.keys.Timer, "", clientv3.WithLease(lease))},
	}
	out, err := commit.Amend(call, t.sess.KV(), put)
	for err == nil && out.Outcome == commit.Overtaken && slices.Contains(was.unsure, leaseOf(out.Found)) {
		put.Mod = out.Found.ModRevision // only a later one of them can be stored still
		out, err = commit.Amend(call, t.sess.KV(), put)
	}
	switch {
	case err != nil && out.Doubt:
		was.unsure = append(slices.Clip(was.unsure), lease)
		return was, err
	case err != nil:
		t.revoke(lease)
		return was, err
	case out.Outcome == commit.Unmet, put.Mod == 0 && out.Outcome == commit.Overtaken && out.Found == nil:
		t.revoke(lease)
		return was, errRateChanged
	case out.Outcome == commit.Overtaken:
		t.revoke(append([]clientv3.LeaseID{lease}, was.unsure...)...)
		return known{}, errOvertaken
	case out.Outcome != commit.Amended:
		return was, errExpired
	}
	t.revoke(append([]clientv3.LeaseID{was.lease}, was.unsure...)...)
	return known{of: was.of, rev: out.Mod, lease: lease, until: sent.Add(stored.Grace - t.slack())}, nil
}

// leaseOf returns the lease by which the time since a record is measured, or 0. A write that arrives twice, or whose answer
// was lost, finds itself by it: to revoke its lease would take the record for one without a clock, whose tokens are all there.
func leaseOf(kv *mvccpb.KeyValue) clientv3.LeaseID {
	if kv == nil {
		return 0
	}
	r, ok := record.DecodeTokens(kv.Value)
	if !ok {
		return 0
	}
	return clientv3.LeaseID(r.Lease)
}

// revoke revokes leases that no key needs, in the background. Otherwise they would exist until the bucket is full.
func (t store) revoke(leases ...clientv3.LeaseID) {
	for _, id := range leases {
		if id == 0 {
			continue
		}
		t.sess.Later(func(ctx context.Context) {
			call, cancel := context.WithTimeout(ctx, t.sess.ReleaseTimeout())
			defer cancel()
			_, _ = t.sess.Etcd().Revoke(call, id)
		})
	}
}
