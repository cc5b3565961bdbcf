package idempotency

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Whether the process of a lost attempt lives, as far as etcd shows it.

// begunBy is the session of an attempt, as its record has it.
type begunBy struct {
	lease int64
	id    string // the same on all leases of the session
}

func begunIn(r record.Attempt) begunBy { return begunBy{r.Lease, r.Session} }

// presence is what etcd shows of the process of an attempt.
type presence int

const (
	unseen   presence = iota // it has no session: it has ended, or is cut off from etcd
	present                  // the session is on the lease of the attempt
	renewed                  // the session has lost that lease, and has another one
	possible                 // a session that cannot be read may be that one, on another lease
)

// sessions are the sessions of a namespace that exist.
type sessions struct {
	leases map[int64]bool
	named  map[string]bool // by their IDs
	unread error           // why one of them cannot be read, or nil
}

// take adds the sessions whose presence keys are among kvs.
func (x *sessions) take(space keyspace.Space, kvs []*mvccpb.KeyValue) {
	for _, kv := range kvs {
		lease, ok := space.ParseAlive(string(kv.Key))
		if !ok {
			continue
		}
		x.leases[lease] = true
		if r, ok := record.DecodeSession(kv.Value); ok {
			x.named[r.ID] = true
		} else {
			x.unread = record.Why(string(kv.Key), kv.Value)
		}
	}
}

// shows returns whether the process of an attempt has a session.
func (x *sessions) shows(of begunBy) presence {
	switch {
	case x.leases[of.lease]:
		return present
	case x.named[of.id]:
		return renewed
	case x.unread != nil:
		return possible
	}
	return unseen
}

// sessionsAtOnce is how many keys of sessions one request reads. Each has up to some hundred bytes.
const sessionsAtOnce = 1000

// readSessions reads which sessions exist, as of one revision. It begins again if that is compacted meanwhile.
func readSessions(ctx context.Context, sess *engine.Session) (all *sessions, err error) {
	var pause commit.Backoff
	for {
		all, err = sessionsAtOneRevision(ctx, sess)
		if !errors.Is(err, rpctypes.ErrCompacted) || pause.Wait(ctx, nil) != nil {
			return all, err
		}
	}
}

func sessionsAtOneRevision(ctx context.Context, sess *engine.Session) (*sessions, error) {
	space := sess.Space()
	all := &sessions{leases: map[int64]bool{}, named: map[string]bool{}}
	span, page := keyspace.NewSpan(space.Sessions(), clientv3.GetPrefixRangeEnd(space.Sessions())), int64(sessionsAtOnce)
	for at := int64(0); ; {
		from, end := span.Range()
		resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) {
			return sess.KV().Get(call, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(at))
		})
		switch {
		case commit.TooLarge(err) && page > 1:
			page /= 2
			continue
		case err != nil:
			return nil, err
		}
		if at == 0 {
			at = resp.Header.Revision // a session on its next lease may have a key in front of this page
		}
		all.take(space, resp.Kvs)
		if resp.More {
			span.Advance(string(resp.Kvs[0].Key), string(resp.Kvs[len(resp.Kvs)-1].Key))
		} else if span.Finish() {
			return all, nil
		}
	}
}

// living sets Alive of records. It reads the sessions once, if a record of a lost attempt needs them.
type living struct {
	sess *engine.Session
	seen *sessions // nil until they are read
}

func (l *living) find(ctx context.Context, records []Record) (err error) {
	for i := range records {
		r := &records[i]
		if r.Alive = r.State == InProgress; r.State != Unknown && (r.Resolved == "" || r.State == Released) {
			continue
		}
		if l.seen == nil {
			if l.seen, err = readSessions(ctx, l.sess); err != nil {
				return err
			}
		}
		r.Alive = l.seen.shows(r.begun) != unseen
	}
	return nil
}
