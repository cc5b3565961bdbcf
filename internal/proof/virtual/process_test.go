package virtual

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/proof/outcome"
	line "github.com/etcdkit/etcdkit/internal/rank"
)

func fateOf(f fate, d time.Duration, m etcdfake.Message) etcdfake.Fault {
	switch f {
	case slowThere:
		return etcdfake.Fault{RequestDelay: d, ResponseDelay: d}
	case slowBack:
		return etcdfake.Fault{ResponseDelay: d}
	case lostThere:
		return etcdfake.Fault{Err: etcdfake.ErrUnavailable, DropRequest: true}
	case lostBack:
		return etcdfake.Fault{Err: etcdfake.ErrUnavailable}
	case swallowed:
		return etcdfake.Fault{DropRequest: true, DropResponse: true}
	case unanswered:
		return etcdfake.Fault{DropResponse: true}
	case lateCopy:
		return etcdfake.Fault{Err: etcdfake.ErrUnavailable, RequestDelay: d}
	case twice:
		return etcdfake.Fault{Duplicate: d}
	case noSpace:
		if m.Method == "Txn" {
			return etcdfake.Fault{Err: rpctypes.ErrGRPCNoSpace}
		}
	}
	return etcdfake.Fault{}
}

// open starts a session if there is none.
func (p *process) open(ctx context.Context) {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	for p.session() == nil {
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		call := p.rec.Call(history.Event{Name: history.Open, Until: p.until(bounded)})
		if p.sim.script.far {
			h := line.Tiny
			if strings.ContainsAny(p.name, "13579") {
				h = line.TinySample
			}
			bounded = line.WithHorizon(bounded, h)
		}
		s, err := concurrency.NewSession(bounded, p.client.Client, "test", &concurrency.SessionOptions{TTL: p.sim.script.ttl, Margin: p.sim.script.margin, Prefix: prefix, Owner: p.name})
		cancel()
		if err != nil {
			call.Done(err, nil)
			continue
		}
		call.Return(history.Event{Outcome: history.OK, Lease: lease(s)})
		p.mu.Lock()
		p.sess = s
		p.mu.Unlock()
	}
}

// close ends the session, and its holders after a while.
func (p *process) close(ctx context.Context, wait time.Duration) {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	p.mu.Lock()
	s := p.sess
	p.sess = nil
	p.mu.Unlock()
	if s == nil {
		return
	}
	call := p.rec.Call(history.Event{Name: history.Close, Lease: lease(s)})
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	begun := time.Now()
	call.Done(s.Close(bounded), nil)
	if took := time.Since(begun); took > wait+2*time.Second {
		p.sim.wrong("close", "%s: Close took %v, with a ctx of %v", p.name, took, wait)
	}
}

func (p *process) until(ctx context.Context) int64 {
	d, _ := ctx.Deadline()
	return p.sim.recorder.At(d)
}

func (p *process) limiter() (*concurrency.KeyedLimiter, error) {
	s := p.session()
	if s == nil {
		return nil, concurrency.ErrClosed
	}
	return concurrency.NewKeyedLimiter(s, limiterName, p.sim.script.limit, &concurrency.KeyedLimiterOptions{Total: p.sim.script.total, AdoptLimit: true})
}

// semaphore returns the semaphore of a step, or that of its key.
func (p *process) semaphore(x step) (*concurrency.Semaphore, error) {
	if x.key != "" || x.all {
		l, err := p.limiter()
		if err != nil {
			return nil, err
		}
		if x.all {
			return l.Total(), nil
		}
		return l.Key(x.key), nil
	}
	s := p.session()
	if s == nil {
		return nil, concurrency.ErrClosed
	}
	return concurrency.NewSemaphore(s, queue, p.sim.script.limit, &concurrency.SemaphoreOptions{AdoptLimit: true})
}

// do does one step.
func (p *process) do(x step) error {
	if name, ok := administration[x.do]; ok {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return p.administer(ctx, name, x)
	}
	return p.ask(context.Background(), x)
}

// administration names the operations that acquire no permit.
var administration = map[action]string{
	setLimit: history.SetLimit, setDefault: history.SetDefault, clearLimit: history.ClearLimit,
	evict: history.Evict, releaseID: history.ReleaseID, status: history.Status, evictToken: history.EvictToken,
}

// administer does a step that acquires no permit.
func (p *process) administer(ctx context.Context, name string, x step) error {
	sem, err := p.semaphore(x)
	if err != nil {
		return err
	}
	l, err := p.limiter()
	if err != nil {
		return err
	}
	e := history.Event{Name: name, Gate: x.gate(), ID: x.id, Limit: int64(x.n), Until: p.until(ctx)}
	switch x.do {
	case setDefault:
		e.Gate = limiter
	case evictToken:
		if e.Token, err = someToken(ctx, sem, x.n); e.Token == 0 {
			return err
		}
	default:
	}
	c, done := p.rec.Call(e), history.Event{Outcome: history.OK}
	switch x.do {
	case setLimit:
		err = sem.SetLimit(ctx, x.n, concurrency.CreateLimit())
	case setDefault:
		err = l.SetDefault(ctx, x.n, concurrency.CreateLimit())
	case clearLimit:
		err = l.ClearLimit(ctx, x.key)
	case evict:
		err = sem.Evict(ctx, x.id, "script")
	case releaseID:
		err = sem.ReleaseID(ctx, x.id)
	case evictToken:
		err = sem.EvictToken(ctx, e.Token, "script")
	case status:
		var st concurrency.Status
		st, err = sem.Status(ctx)
		done.Rev, done.N = st.Revision, int64(st.Used)
	}
	if err != nil {
		outcome.Return(c, err)
		return err
	}
	c.Return(done)
	return nil
}

// someToken returns the token of a holder or a waiter, 0 if there is none.
func someToken(ctx context.Context, sem *concurrency.Semaphore, which int) (int64, error) {
	st, err := sem.Status(ctx)
	all := append(st.Holders, st.Waiters...)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	return all[which%len(all)].Token, nil
}

// ask acquires a permit, holds it and releases it.
func (p *process) ask(ctx context.Context, x step) error {
	sem, err := p.semaphore(x)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, x.ctx)
	defer cancel()
	e := history.Event{Name: history.Acquire, Gate: x.gate(), Weight: int64(x.n), ID: x.id, Until: p.until(ctx)}
	get := sem.Acquire
	var opts []concurrency.AcquireOption
	switch x.do {
	case try:
		e.Name, get = history.Try, sem.TryAcquire
	case waitFor:
		opts = append(opts, concurrency.Wait(x.bound+1))
	case maxHold:
		opts = append(opts, concurrency.MaxHold(x.bound+1))
	case takeOver:
		opts = append(opts, concurrency.TakeOver())
		e.Attr = map[string]string{"takeover": "yes"}
	}
	if x.id != "" {
		opts = append(opts, concurrency.ID(x.id))
	}
	call := p.rec.Call(e)
	permit, err := get(ctx, append(opts, concurrency.Weight(x.n), concurrency.Note(call.Tag()))...)
	if err != nil {
		outcome.Return(call, err)
		return err
	}
	belief := call.Granted(permit.Token())
	p.act(permit.Context(), permit, x.gate())
	p.hold(permit, belief, x.d)
	if permit.Err() != nil {
		p.act(context.Background(), permit, x.gate()) // the work does not know that it is over
	}

	back, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c := p.rec.Call(history.Event{Name: history.Release, Gate: x.gate(), Token: permit.Token(), Until: p.until(back)})
	c.Done(permit.Release(back), outcome.Definite)
	return nil
}

// act writes something under the permit's guard, without asking whether it is held.
func (p *process) act(ctx context.Context, permit *concurrency.Permit, gate string) {
	key, value := root+"register/"+gate, fmt.Sprintf("%s/%d", p.name, p.sim.writes.Add(1))
	e := history.Event{
		Kind: history.KindEffect, Gate: gate, Token: permit.Token(), Outcome: history.Fail,
		Attr: map[string]string{"register": key, "mode": history.ModeGuard, "value": value},
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	resp, err := p.client.Txn(ctx).If(permit.Guard()).Then(clientv3.OpPut(key, value)).Commit()
	switch {
	case err != nil:
		e.Outcome, e.Error = history.Unknown, err.Error()
	case resp.Succeeded:
		e.Outcome, e.Rev = history.OK, resp.Header.Revision
	}
	p.rec.Add(e)
}

// hold believes in a permit until its time is over or it learns better.
func (p *process) hold(permit *concurrency.Permit, belief *history.Belief, d time.Duration) {
	for begun := time.Now(); belief.Check(permit); {
		left := d - time.Since(begun)
		if left <= 0 {
			belief.End(history.Released)
			return
		}
		select {
		case <-time.After(min(left, 200*time.Millisecond)):
		case <-permit.Context().Done():
		}
	}
	belief.End(outcome.Cause(permit.Err()))
}
