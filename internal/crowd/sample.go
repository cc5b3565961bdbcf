package crowd

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// Where the limit is large, a far request does not watch single requests before it: of those some hold for long, and a
// mass release passes by the others (W2 and W7 in internal/proof/tested-failures.md). Its session watches the
// deletions in a few parts of the queue, and estimates by them how many requests have left it. One sample is for all
// requests of the session, and serves one after the other.

// sample is the watches of a few parts of a queue.
type sample struct {
	until  time.Time // when it is old (W13)
	closed atomic.Bool
	stop   func()
}

// samples are the samples of a session's queue, one after the other.
type samples struct {
	left atomic.Int64  // how many requests have left the queue while there was a sample, about
	some chan struct{} // has a value when some have, or a sample has ended
}

// untilSampled waits until a request is near, by a sample. It returns false when another request is the first, or the
// sample is old. An estimate only says when to look: the view of the front shows whether the request is near.
func (m *monitor) untilSampled(ctx context.Context, s *Waiter) (near bool, err error) {
	sample, err := m.sampleQueue(ctx, s)
	if err != nil {
		return false, err
	}
	w := watched{Waiter: s, limit: m.limitRevs(), requests: s.ahead + 1, still: &m.still, every: m.Horizon.Look}
	w.still.see(w.requests)
	until, far := m.horizon().Deletions(s.ahead, limit.SeenN(m.Limit))
	if !far {
		return true, nil
	}
	for n := range listEvery {
		if n > 0 {
			again, err := w.verify(ctx, m.Crowd, true)
			if err != nil {
				return false, err
			}
			if again {
				break
			}
		}
		if next := m.sleepBySample(ctx, &w, until, sample); next != lookAgain {
			return next == followNow, ctx.Err()
		}
	}
	s.placed = false
	return false, nil
}

func (m *monitor) limitRevs() limit.Revs {
	if l := m.Limit.Seen(); l != nil {
		return l.Revs
	}
	return limit.Revs{}
}

// sleepBySample waits until there is something to do for a far request.
func (m *monitor) sleepBySample(ctx context.Context, w *watched, until int64, s *sample) afterSleep {
	look, renew := time.NewTimer(jitter(w.period())), time.NewTimer(time.Until(s.until))
	defer look.Stop()
	defer renew.Stop()
	then, soon := lookAgain, false // soon: there is a reason for the next look
	for m.samples.left.Load()-w.from < until {
		select {
		case <-m.samples.some:
			w.still.end()
			switch {
			case soon:
			case s.closed.Load():
				then, soon = listAgain, true
				look.Reset(rand.N(w.spread()))
			default: // the sample shows that the queue moves
				look.Reset(jitter(w.period()))
			}
		case <-renew.C:
			return listAgain
		case <-look.C:
			return then
		case <-m.own.changed:
			if !m.far(w.Waiter) {
				return listAgain
			}
			soon = true
			look.Reset(rand.N(w.spread())) // all far requests of the queue have learned it at the same moment
		case <-m.waiters.recheck:
			if first, last := m.waiters.ends(); first != w.Waiter || last.Found.Known && !m.far(last) {
				w.placed = false
				return listAgain
			}
		case <-ctx.Done():
			return listAgain
		}
	}
	return followNow
}

// sampleQueue returns the sample of the queue, a new one if there is none that will do. The request knows its place then.
func (m *monitor) sampleQueue(ctx context.Context, s *Waiter) (*sample, error) {
	now := m.own.sample()
	if now != nil && (now.closed.Load() || !time.Now().Before(now.until)) {
		now = nil
	}
	if now != nil && s.placed {
		return now, nil
	}
	keys, err := m.place(ctx, s)
	if now != nil || err != nil {
		return now, err
	}
	var spans []mirror.Span
	parts, weight := m.Horizon.Sample(keys, rand.Float64())
	for _, p := range parts {
		spans = append(spans, mirror.Span(p))
	}
	n := &sample{until: time.Now().Add(jitter(m.Horizon.Renew))}
	n.stop, err = m.Session.Source().Deletions(m.Session.Context(), spans, func(string) {
		m.samples.left.Add(weight)
		signal(m.samples.some)
	}, func(error) {
		n.closed.Store(true)
		signal(m.samples.some)
	})
	if err != nil {
		return nil, err
	}
	m.own.replace(n)
	return n, nil
}

// place reads the keys of the queue, in their order, and the place of a request.
func (m *monitor) place(ctx context.Context, s *Waiter) (keys []string, err error) {
	from := m.samples.left.Load()
	resp, err := m.readFor(ctx, s, []clientv3.Op{clientv3.OpGet(m.Keys.Requests, clientv3.WithPrefix(), clientv3.WithKeysOnly())})
	if err != nil {
		return nil, err
	}
	s.ahead, s.from, s.placed = 0, from, true
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		keys = append(keys, string(kv.Key))
		if kv.CreateRevision < s.Token {
			s.ahead++
		}
	}
	slices.Sort(keys)
	return keys, nil
}
