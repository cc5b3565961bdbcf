package crowd

import (
	"context"
	"errors"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/rank"
)

// What is read for requests that are far from their admission.

// isGone reports whether a request's key is gone.
func (c *Crowd) isGone(ctx context.Context, s *Waiter) bool {
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.GetResponse, error) {
		return c.Session.KV().Get(call, s.Key, clientv3.WithKeysOnly())
	})
	if err != nil || s.shownAt(resp.Header.Revision) != nil {
		return false
	}
	c.Session.See(resp.Header.Revision)
	return len(resp.Kvs) == 0 || resp.Kvs[0].CreateRevision != s.Token
}

// ownKeys returns the prefix of the keys of a request and of the others of its session, as far as
// they have the same weight.
func (s *Waiter) ownKeys() string {
	return s.Key[:strings.LastIndex(strings.TrimSuffix(s.Key, "-try"), "-")+1]
}

// tail is what a list shows of the requests before one.
type tail struct {
	before   []rank.Entry // the youngest first; the oldest are left out
	limit    limit.Limit
	unclear  bool  // the request is gone, or the limit cannot be read: its view shows what to do
	requests int64 // how many there are in all
}

// mostForeign bounds how many foreign keys tail reads beside the requests.
const mostForeign = 1024

// tail reads the requests before one, as many as show whether it is far. Where foreign keys take the place
// of requests in what was read, it reads more.
func (c *Crowd) tail(ctx context.Context, s *Waiter) (tail, error) {
	for {
		room := c.foreign.Load()
		t, foreign, cut, err := c.tailWithin(ctx, s, c.horizon().Distance(limit.SeenN(c.Limit))+1+room)
		if err != nil || !cut || foreign <= room || room == mostForeign {
			return t, err
		}
		c.foreign.Store(min(2*foreign, mostForeign))
	}
}

// tailWithin is tail of so many keys. It returns how many of them were foreign, and whether there are more.
func (c *Crowd) tailWithin(ctx context.Context, s *Waiter, most int64) (t tail, foreign int64, cut bool, err error) {
	ops := []clientv3.Op{clientv3.OpGet(c.Keys.Requests, clientv3.WithPrefix(), clientv3.WithMaxCreateRev(s.Token),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(most))}
	resp, err := c.readFor(ctx, s, append(ops, c.Limit.Reads()...))
	if err != nil {
		return t, 0, false, err
	}
	l, stored, err := c.Limit.Learn(c.Limit.Records(resp.Responses[1:], resp.Header.Revision))
	t.limit, t.unclear = l, err != nil || !stored
	c.waiters.wakeIf(func(s *Waiter) bool { return rank.TooHeavy(s.Weight, l.N) })
	found, there := resp.Responses[0].GetResponseRange(), false
	for _, kv := range found.Kvs {
		if kv.CreateRevision == s.Token && string(kv.Key) == s.Key {
			there = true
		} else if slot, ok := c.Keys.ParseSlot(string(kv.Key)); ok && kv.Lease != 0 {
			t.before = append(t.before, rank.Entry{Key: string(kv.Key), Create: kv.CreateRevision, Weight: slot.Weight})
		} else {
			foreign++
		}
	}
	t.requests, t.unclear = found.Count, t.unclear || !there
	return t, foreign, found.More, nil
}

// errOld says that an answer is older than the request for which it was asked.
var errOld = errors.New("the answer is older than the request")

// lookTimeout bounds one read of what is before a far request. Its turn may come meanwhile, so it is
// shorter than commit.CallTimeout.
const lookTimeout = 2 * time.Second

// readFor reads linearizably, as of one revision that shows the request.
func (c *Crowd) readFor(ctx context.Context, s *Waiter, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		call, cancel := context.WithTimeout(call, lookTimeout)
		defer cancel()
		return c.Session.KV().Txn(call).Then(ops...).Commit()
	})
	if err == nil {
		err = s.shownAt(resp.Header.Revision)
	}
	if err != nil {
		return nil, err
	}
	c.Session.See(resp.Header.Revision)
	return resp, nil
}

// shownAt returns errOld if an answer of that revision is too old to show the request.
func (s *Waiter) shownAt(revision int64) error {
	if revision < s.Token {
		return errOld
	}
	return nil
}
