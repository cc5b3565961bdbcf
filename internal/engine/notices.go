package engine

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// notice delivers what another session has left for one of this session's requests, and
// removes it from etcd. If the request does not hold yet, it is kept with the request, for
// the caller that waits.
func (e *Epoch) notice(kv *mvccpb.KeyValue) {
	var m Mail
	token, request, ok := e.keys.ParseStop(string(kv.Key))
	if ok {
		m.Asked = decode(kv, request, record.Notice{})
	} else if token, request, ok = e.keys.ParseNotice(string(kv.Key)); ok {
		m.Notice = decodeNotice(kv, request)
	} else {
		return // a foreign key
	}
	e.deliver(token, m)
	e.erase(string(kv.Key), kv.CreateRevision)
}

// erase deletes a notice in the background, until the epoch ends if etcd denies that. Each list shows such a notice again.
func (e *Epoch) erase(key string, create int64) {
	n := erasure{key, create}
	if !e.erasures.begin(n) {
		return
	}
	e.sess.Background(func() {
		defer e.erasures.end(n)
		_, err := commit.Erase(e.ctx, e.sess.kv, key, create, func(err error) { e.sess.denials.refused(deniedNotice, err) })
		if err == nil {
			e.sess.denials.refused(deniedNotice, nil)
		}
	})
}

// erasure is a notice that is being deleted.
type erasure struct {
	key    string
	create int64
}

// erasures are those that are under way. It is safe for concurrent use.
type erasures struct {
	mu  sync.Mutex
	all map[erasure]struct{}
}

// begin records one, and reports whether it is new.
func (s *erasures) begin(n erasure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, under := s.all[n]
	if s.all == nil {
		s.all = map[erasure]struct{}{}
	}
	s.all[n] = struct{}{}
	return !under
}

func (s *erasures) end(n erasure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, n)
}

func (e *Epoch) deliver(token int64, m Mail) {
	for t, h := range e.roll.deliver(token, m) {
		if m.Notice != nil {
			e.evicted(t, h, m.Notice)
		} else {
			h.StepDown(*m.Asked)
		}
	}
}

// evicted ends the holder of a ticket by a notice. Hooks are not called in this goroutine: it may be
// the one that watches the presence key.
func (e *Epoch) evicted(t *Ticket, h Holder, n *record.Notice) {
	report := h.Evicted(*n)
	e.Drop(t)
	e.Free(t)
	if report != nil {
		e.sess.Report(report)
	}
}

func decodeNotice(kv *mvccpb.KeyValue, request string) *record.Notice {
	return decode(kv, request, record.Notice{Cause: record.CauseEvicted})
}

// decode reads a stored notice for a request. One that cannot be read is unreadable, with why as its reason.
func decode(kv *mvccpb.KeyValue, request string, unreadable record.Notice) *record.Notice {
	n, ok := record.DecodeNotice(kv.Value)
	if !ok {
		n = unreadable
		n.Reason = record.Why(string(kv.Key), kv.Value).Error()
	}
	n.Key = request
	return &n
}

// FindNotice looks for the notice of one of this session's requests in etcd, too, and
// returns nil if there is none. It returns etcd's error if that refuses the read, and ctx's, joined with the last of etcd's,
// if ctx ends before etcd has answered, unless the lease has ended and the notice with it.
func (e *Epoch) FindNotice(ctx context.Context, t *Ticket) (*record.Notice, error) {
	if n := e.Notice(t); n != nil {
		return n, nil
	}
	// It was written in the same Txn, but this session's watch may lag.
	kvs, err := e.sess.Get(ctx, e.keys.Notice(t.Token, t.Key))
	if err == nil && len(kvs) > 0 {
		return decodeNotice(kvs[0], t.Key), nil
	}
	n := e.Notice(t) // the watch has brought it meanwhile, and it was removed
	if n != nil || err == nil || e.ctx.Err() != nil {
		return n, nil //nolint:nilerr // the notice has ended with the lease
	}
	return nil, err
}
