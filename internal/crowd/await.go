package crowd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/rank"
)

// End is how a wait has ended.
type End int

// The ends of a wait.
const (
	none      End = iota
	otherMode     // the requests wait in another way now
	Admitted      // the request is admitted
	Gone          // its key is gone
	TooHeavy      // the limit was lowered below its weight
	Ended         // ctx has ended
	Failed        // by Result.Err
)

// Result is how a wait has ended, and what was seen then.
type Result struct {
	End
	Limits mirror.Limits // by which it is admitted, if a read or another queue has confirmed it
	Seen   mirror.Brief  // the queue, if a view has shown it; where the request is too heavy, its Limit is known
	Asleep bool          // ctx has ended it while it was far, and no view has shown it
	Err    error
}

// Await waits until the request is admitted, can never be, is gone, ctx ends, or etcd's answer is an error. Its key is there still,
// unless it is gone: that is the caller's concern.
func (c *Crowd) Await(ctx context.Context, s *Waiter) Result {
	for {
		mode, changed := c.waiters.now()
		var r Result
		switch mode {
		case Whole:
			if r = c.follow(ctx, s, c.View.Join(), changed); r.End == otherMode {
				c.View.Rest() // those that sleep do not come back to it
			}
		case Asleep:
			r = c.sleep(ctx, s, changed)
		case Front:
			r = c.follow(ctx, s, c.Front.Join(), changed)
		default:
			return Result{End: Failed, Err: fmt.Errorf("wait in mode %d: it does not exist", mode)}
		}
		if r.End != otherMode {
			return r
		}
	}
}

// follow is Await by what a mirror shows, until the requests wait in another way.
func (c *Crowd) follow(ctx context.Context, s *Waiter, m *mirror.Use, changed <-chan struct{}) Result {
	defer m.Leave()
	wait := func() *mirror.Waiter { return m.Wait(s.Key, s.Token, s.Weight, s.Found) }
	w := wait()
	reports := s.Follows(ctx, m.Mirror)
	defer func() { reports() }()
	var pause commit.Backoff
	for {
		select {
		case shown := <-w.Outcome():
			end, err := c.endOf(ctx, s, w, shown)
			if err != nil && ctx.Err() == nil {
				return Result{End: Failed, Err: err}
			}
			if end != none {
				b, _ := m.Brief(s.Key, s.Token, 0)
				return Result{End: end, Limits: w.Limits(), Seen: b}
			}
			if w.Suggested() && !c.OfKey { // nothing else brings the limit to the view
				m.ListAgain()
			}
			_ = pause.Wait(ctx, nil) // the view is out of date, or ctx has ended
			w = wait()
		case <-changed:
			if m.Forget(w) {
				return Result{End: otherMode}
			}
			changed = nil // its outcome has come
		case <-m.Replaced:
			reports()
			m.Next()
			w = wait()
			reports = s.Follows(ctx, m.Mirror)
		case <-ctx.Done():
			m.Forget(w)
			b, _ := m.Brief(s.Key, s.Token, 0)
			return Result{End: Ended, Seen: b}
		}
	}
}

// endOf returns how a wait ends of which the view shows an outcome; none if it does not end yet.
func (c *Crowd) endOf(ctx context.Context, s *Waiter, w *mirror.Waiter, shown mirror.Outcome) (End, error) {
	switch shown {
	case mirror.Admitted:
		sure, err := c.confirm(ctx, s, w)
		if !sure {
			return none, err
		}
		return Admitted, nil
	case mirror.Gone:
		return Gone, nil
	case mirror.TooHeavy:
		return TooHeavy, nil
	case mirror.Damaged:
		return none, limit.Unreadable(w.Limits().InForce())
	}
	return none, s.Restore(ctx)
}

// confirm reports whether a request is admitted that the view shows as admitted. That needs no
// confirmation where one watch brings the queue and its limit. Otherwise the end of an earlier request may
// be seen before a change of the limit that came first. The weight up to the request only falls, so the
// request is admitted as of this one read if it fits the limit there.
func (c *Crowd) confirm(ctx context.Context, s *Waiter, w *mirror.Waiter) (bool, error) {
	if !w.Suggested() || c.Joins {
		return true, nil
	}
	resp, err := commit.Read(ctx, func(call context.Context) (*clientv3.TxnResponse, error) {
		return c.Session.KV().Txn(call).Then(append(c.Limit.Reads(), clientv3.OpGet(s.Key, clientv3.WithKeysOnly()))...).Commit()
	})
	if err != nil {
		return false, err
	}
	c.Session.See(resp.Header.Revision)
	read, key := c.Limit.Records(resp.Responses, resp.Header.Revision), limit.First(resp.Responses[len(resp.Responses)-1])
	seen, stored, err := c.Limit.Learn(read)
	if key == nil || key.CreateRevision != s.Token || err != nil || !stored {
		return false, nil //nolint:nilerr // the view is about to show that
	}
	return rank.Fits(0, w.UpTo(), seen.N) || read.Own != nil && mirror.ReadLimitRecord(read.Own).Through >= s.Token, nil
}

// sleep is Await of a far request, until the requests wait in another way.
func (c *Crowd) sleep(ctx context.Context, s *Waiter, changed <-chan struct{}) Result {
	noticed := s.Noticed()
	report := time.NewTimer(0)
	defer report.Stop()
	for {
		select {
		case <-changed:
			return Result{End: otherMode}
		case <-noticed:
			noticed = nil
			signal(s.woken)
		case <-s.woken:
			if c.isGone(ctx, s) {
				return Result{End: Gone}
			}
			if n := limit.SeenN(c.Limit); rank.TooHeavy(s.Weight, n) {
				return Result{End: TooHeavy, Seen: mirror.Brief{Limit: n}}
			}
		case <-report.C:
			s.Sleeps(ctx)
			report.Reset(c.ReportEvery)
		case <-ctx.Done():
			return Result{End: Ended, Asleep: true}
		}
	}
}
