package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Mutexes is the Workload for concurrency.Mutex. Each mutex protects a register that
// checks tokens.
type Mutexes struct {
	names     []string
	registers map[string]Register
}

// NewMutexes returns two mutexes, each with a register in memory.
func NewMutexes() *Mutexes { return NewMutexesOn(func(string) Register { return NewRegister() }) }

// NewMutexesOn returns two mutexes, which protect those registers.
func NewMutexesOn(register func(name string) Register) *Mutexes {
	m := &Mutexes{names: []string{"left", "right"}, registers: map[string]Register{}}
	for _, name := range m.names {
		m.registers[name] = register(name)
	}
	return m
}

// Name implements Workload.
func (*Mutexes) Name() string { return "mutexes" }

// Queues implements Workload.
func (m *Mutexes) Queues(space keyspace.Space) (queues []keyspace.Queue) {
	for _, name := range m.names {
		queues = append(queues, space.Queue(keyspace.Mutex, name))
	}
	return queues
}

// Plan implements Workload.
func (m *Mutexes) Plan(r *rand.Rand) Operation {
	name := m.names[r.IntN(len(m.names))]
	if r.IntN(30) == 0 {
		return m.evict(name, r.Uint64(), time.Duration(100+r.IntN(3000))*time.Millisecond)
	}
	a := drawAsk(r)
	a.gate, a.register = "mutex/"+name, m.registers[name]
	return Operation{Name: a.name() + " " + name, Do: func(ctx context.Context, p *Process) error {
		mu, err := m.on(p, name)
		if err != nil {
			return err
		}
		return a.run(ctx, p, asker{acquire: mu.Lock, try: mu.TryLock, do: mu.Do})
	}}
}

func (m *Mutexes) on(p *Process, name string) (*concurrency.Mutex, error) {
	s, err := p.Kit()
	if err != nil {
		return nil, err
	}
	return concurrency.NewMutex(s, name)
}

func (m *Mutexes) evict(name string, which uint64, bound time.Duration) Operation {
	return Operation{Name: history.EvictToken + " " + name, Do: func(ctx context.Context, p *Process) error {
		mu, err := m.on(p, name)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		st, err := mu.Status(ctx)
		all := slices.Concat(st.Holders, st.Waiters)
		if err != nil || len(all) == 0 {
			return err
		}
		token := all[which%uint64(len(all))].Token
		return p.call(ctx, history.Event{Name: history.EvictToken, Gate: "mutex/" + name, Token: token}, func() error {
			return mu.EvictToken(ctx, token, "chaos")
		})
	}}
}

// Probe implements Workload.
func (m *Mutexes) Probe(ctx context.Context, p *Process) error {
	for _, name := range m.names {
		mu, err := m.on(p, name)
		if err != nil {
			return err
		}
		a := plain("mutex/"+name, 1, m.registers[name])
		if err := a.run(ctx, p, asker{acquire: mu.Lock, try: mu.TryLock, do: mu.Do}); err != nil {
			return fmt.Errorf("mutex %s: %w", name, err)
		}
	}
	return nil
}
