package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/proof/outcome"
)

// Elections is the Workload for concurrency.Election: one election, whose terms write
// to a register that checks tokens.
type Elections struct {
	name     string
	register Register
}

// NewElections returns an election with a register in memory.
func NewElections() *Elections { return NewElectionsOn(func(string) Register { return NewRegister() }) }

// NewElectionsOn returns an election that protects a register.
func NewElectionsOn(register func(name string) Register) *Elections {
	const name = "chief"
	return &Elections{name, register(name)}
}

// Name implements Workload.
func (*Elections) Name() string { return "elections" }

// Queues implements Workload.
func (s *Elections) Queues(space keyspace.Space) []keyspace.Queue {
	return []keyspace.Queue{space.Queue(keyspace.Election, s.name)}
}

func (s *Elections) gate() string { return "election/" + s.name }

// Plan implements Workload.
func (s *Elections) Plan(r *rand.Rand) Operation {
	bound := time.Duration(100+r.IntN(3000)) * time.Millisecond
	switch n := r.IntN(100); {
	case n < 4:
		return s.with("step-down", bound, s.stepDown)
	case n < 7:
		return s.with(history.EvictToken, bound, s.evict)
	case n < 15:
		return s.with(history.Status, bound, s.leader)
	case n < 19:
		return s.with("watch", bound, s.watch)
	}
	a := drawAsk(r)
	a.gate, a.register, a.try = s.gate(), s.register, false
	return Operation{Name: a.name() + " " + s.name, Do: func(ctx context.Context, p *Process) error {
		el, err := s.on(p)
		if err != nil {
			return err
		}
		return a.run(ctx, p, campaigns(el))
	}}
}

// campaigns asks an election for terms. What is done by Lead is one term.
func campaigns(el *concurrency.Election) asker {
	return asker{acquire: el.Campaign, do: func(ctx context.Context, fn func(context.Context, *concurrency.Permit) error, opts ...concurrency.AcquireOption) error {
		ctx, enough := context.WithCancel(ctx)
		defer enough()
		return el.Lead(ctx, func(ctx context.Context, term *concurrency.Permit) error {
			defer enough()
			return fn(ctx, term)
		}, opts...)
	}}
}

func (s *Elections) on(p *Process) (*concurrency.Election, error) {
	sess, err := p.Kit()
	if err != nil {
		return nil, err
	}
	return concurrency.NewElection(sess, s.name)
}

// with is an operation that takes no longer than bound.
func (s *Elections) with(name string, bound time.Duration, do func(context.Context, *Process, *concurrency.Election) error) Operation {
	return Operation{Name: name + " " + s.name, Do: func(ctx context.Context, p *Process) error {
		el, err := s.on(p)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		return do(ctx, p, el)
	}}
}

func (*Elections) stepDown(ctx context.Context, _ *Process, el *concurrency.Election) error {
	_, err := el.StepDown(ctx, "chaos")
	return err
}

// evict takes the term away.
func (s *Elections) evict(ctx context.Context, p *Process, el *concurrency.Election) error {
	now, err := el.Leader(ctx)
	if err != nil || !now.Elected() {
		return err
	}
	return p.call(ctx, history.Event{Name: history.EvictToken, Gate: s.gate(), Token: now.Token}, func() error {
		return el.EvictToken(ctx, now.Token, "chaos")
	})
}

// leader reads the leader; checkers count the leaders.
func (s *Elections) leader(ctx context.Context, p *Process, el *concurrency.Election) error {
	c := p.rec.Call(history.Event{Name: history.Status, Gate: s.gate(), Until: deadline(ctx)})
	now, err := el.Leader(ctx)
	if err != nil {
		outcome.Return(c, err)
		return err
	}
	e := history.Event{Outcome: history.OK, Rev: now.Revision, N: 1}
	if !now.Elected() {
		e.N = 0
	}
	c.Return(e)
	return nil
}

// watch follows the leader until the bound has passed: terms only rise.
func (*Elections) watch(ctx context.Context, _ *Process, el *concurrency.Election) error {
	last := concurrency.Leader{}
	for now, err := range el.Watch(ctx) {
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case now.Revision < last.Revision, now.Elected() && now.Token <= last.Token:
			return fmt.Errorf("watch goes back from term %d at revision %d to %d at %d", last.Token, last.Revision, now.Token, now.Revision)
		}
		last.Revision = now.Revision
		if now.Elected() {
			last.Token = now.Token
		}
	}
	return nil
}

// Probe implements Workload.
func (s *Elections) Probe(ctx context.Context, p *Process) error {
	el, err := s.on(p)
	if err != nil {
		return err
	}
	if err := plain(s.gate(), 1, s.register).run(ctx, p, campaigns(el)); err != nil {
		return fmt.Errorf("election %s: %w", s.name, err)
	}
	return nil
}
