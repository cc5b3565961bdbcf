package crowd

import (
	"context"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/rank"
)

// watched is what a far request watches.
type watched struct {
	*Waiter
	left     []rank.Entry // the requests that are not gone
	enough   int          // when no more are left, the request may be near
	limit    limit.Revs
	requests int64 // in the queue
	still    *stillness
	every    time.Duration // as a Horizon says
}

// stillness is for how many looks a queue has not changed, as far as they show.
type stillness struct {
	requests int64 // at the last look
	looks    int
}

// see counts a look that has found so many requests.
func (s *stillness) see(requests int64) {
	if s.requests != requests {
		*s = stillness{requests: requests}
	}
	s.looks++
}

// end is for a change of the queue. It returns whether there was none for long.
func (s *stillness) end() bool {
	was := s.looks
	s.looks = 0
	return was > stillLooks
}

// stillLooks is how many looks in a row find the same before the next ones are less often, and
// stillPeriods how much less.
const (
	stillLooks   = 3
	stillPeriods = 4
)

func (w *watched) keys() (keys []string) {
	for _, e := range w.left {
		keys = append(keys, e.Key)
	}
	return keys
}

func (w *watched) spans() (spans []mirror.Span) {
	for _, e := range w.left {
		spans = append(spans, mirror.Span{From: e.Key})
	}
	return spans
}

// period is how long the request sleeps at most before it looks.
func (w *watched) period() time.Duration {
	n := max(1, float64(w.requests)/lookCrowd)
	n *= n
	if w.still.looks > stillLooks {
		n = max(n, stillPeriods)
	}
	return time.Duration(float64(w.every) * n)
}

// spread is the time over which the far requests of a queue spread their lists if all have a
// reason at the same moment: as long as the lists take etcd.
func (w *watched) spread() time.Duration {
	return time.Duration(w.requests*w.requests)*listCost + 1
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// verify reads which of the watched requests exist. It is called when all watches exist: what was
// deleted before, they do not report. With more it reads what the list has shown as well; again is set if
// that is a reason to list: the request is gone, the limit has changed, or so many requests are gone that
// those which are watched may be among the last.
func (w *watched) verify(ctx context.Context, c *Crowd, more bool) (again bool, err error) {
	var ops []clientv3.Op
	for _, key := range w.keys() {
		ops = append(ops, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	}
	if more {
		ops = append(ops, clientv3.OpGet(w.Key, clientv3.WithKeysOnly()), clientv3.OpGet(c.Keys.Requests, clientv3.WithPrefix(), clientv3.WithCountOnly()))
		ops = append(ops, c.Limit.Reads()...)
	}
	resp, err := c.readFor(ctx, w.Waiter, ops)
	if err != nil {
		return false, err
	}
	kv := func(i int) *mvccpb.KeyValue { return limit.First(resp.Responses[i]) }
	var left []rank.Entry
	for i, e := range w.left {
		if kv := kv(i); kv != nil && kv.CreateRevision == e.Create {
			left = append(left, e)
		}
	}
	n := len(w.left)
	if len(left) < n {
		w.still.end()
	}
	w.left = left
	if !more {
		return false, nil
	}
	key, requests := kv(n), resp.Responses[n+1].GetResponseRange().Count
	w.still.see(requests)
	return key == nil || key.CreateRevision != w.Token || requests < w.requests*3/4 ||
		c.Limit.Records(resp.Responses[n+2:], resp.Header.Revision).Revs() != w.limit, nil
}
