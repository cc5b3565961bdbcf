package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/proof/outcome"
)

// semaphore is one queue of the workload.
type semaphore struct {
	name    string
	limiter string // if it is a key of one
	total   int    // of that limiter; 0: it has none
	all     bool   // it is that total, and no key
	limit   int
	heavy   int  // greatest weight asked for
	ids     int  // number of IDs in use; 0: none
	steady  bool // its limit is never changed, so a mismatch is a finding

	keep, handover time.Duration
	values         *values // of a semaphore with one of these; nil: each operation has its own
}

// Semaphores is the Workload for concurrency.Semaphore.
type Semaphores struct{ all []semaphore }

// NewSemaphores returns semaphores of several limits, with and without weights, IDs
// and changes of the limit.
func NewSemaphores() *Semaphores {
	return &Semaphores{all: []semaphore{
		{name: "single", limit: 1, heavy: 1, steady: true},
		{name: "pair", limit: 2, heavy: 2},
		{name: "named", limit: 2, heavy: 1, ids: 3},
		{name: "five", limit: 5, heavy: 3},
		{name: "wide", limit: 20, heavy: 8, ids: 6},
	}}
}

// Name implements Workload.
func (*Semaphores) Name() string { return "semaphores" }

// Queues implements Workload.
func (s *Semaphores) Queues(space keyspace.Space) (queues []keyspace.Queue) {
	for _, q := range s.all {
		queues = append(queues, space.Queue(keyspace.Semaphore, q.name))
	}
	return queues
}

func (q semaphore) gate() string {
	switch {
	case q.all:
		return "limiter/" + q.limiter + "/total"
	case q.limiter != "":
		return "limiter/" + q.limiter + "/key/" + q.name
	}
	return "semaphore/" + q.name
}

func (q semaphore) on(p *Process) (*concurrency.Semaphore, error) {
	s, err := p.Kit()
	if err != nil {
		return nil, err
	}
	if q.limiter != "" {
		l, err := concurrency.NewKeyedLimiter(s, q.limiter, q.limit, &concurrency.KeyedLimiterOptions{Total: q.total, AdoptLimit: true})
		if err != nil {
			return nil, err
		}
		if q.all {
			return l.Total(), nil
		}
		return l.Key(q.name), nil
	}
	if q.values != nil {
		return q.values.on(s, q)
	}
	return concurrency.NewSemaphore(s, q.name, q.limit, &concurrency.SemaphoreOptions{AdoptLimit: !q.steady})
}

// Plan implements Workload.
func (s *Semaphores) Plan(r *rand.Rand) Operation {
	q := s.all[r.IntN(len(s.all))]
	return q.plan(r, time.Duration(100+r.IntN(3000))*time.Millisecond)
}

// plan draws an operation, which is bounded if it acquires no permit.
func (q semaphore) plan(r *rand.Rand, bound time.Duration) Operation {
	switch n := r.IntN(100); {
	case n < 86:
		return q.use(r)
	case n < 90:
		return q.status(bound)
	case n < 92:
		return q.watch(bound)
	case n < 94:
		return q.evictToken(r.Uint64(), bound)
	case n < 97 && q.ids > 0:
		return q.endID(strconv.Itoa(r.IntN(q.ids)), r.IntN(2) == 0, bound)
	case q.steady:
		return q.use(r)
	default:
		limit := r.IntN(q.limit + 2) // sometimes below the weight of a waiter, sometimes a pause
		if r.IntN(2) == 0 {
			limit = q.limit
		}
		return q.setLimit(limit, bound)
	}
}

// use draws one acquisition with all that goes with it.
func (q semaphore) use(r *rand.Rand) Operation {
	a := drawAsk(r)
	a.gate = q.gate()
	if q.heavy > 1 && r.IntN(2) == 0 {
		a.weight = 1 + r.IntN(q.heavy)
	}
	if q.ids > 0 && r.IntN(3) > 0 {
		a.id = strconv.Itoa(r.IntN(q.ids))
		a.takeOver = r.IntN(4) == 0
	}
	return Operation{Name: a.name() + " " + q.name, Do: func(ctx context.Context, p *Process) error {
		sem, err := q.on(p)
		if err != nil {
			return err
		}
		return a.run(ctx, p, asker{acquire: sem.Acquire, try: sem.TryAcquire, do: sem.Do})
	}}
}

// call is an operation that only returns an error.
func (q semaphore) call(e history.Event, bound time.Duration, do func(context.Context, *concurrency.Semaphore) error) Operation {
	e.Gate = q.gate()
	return Operation{Name: e.Name + " " + q.name, Do: func(ctx context.Context, p *Process) error {
		sem, err := q.on(p)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		return p.call(ctx, e, func() error { return do(ctx, sem) })
	}}
}

func (q semaphore) status(bound time.Duration) Operation {
	return Operation{Name: history.Status + " " + q.name, Do: func(ctx context.Context, p *Process) error {
		sem, err := q.on(p)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		c := p.rec.Call(history.Event{Name: history.Status, Gate: q.gate(), Until: deadline(ctx)})
		st, err := sem.Status(ctx)
		if err != nil {
			outcome.Return(c, err)
			return err
		}
		c.Return(history.Event{Outcome: history.OK, Rev: st.Revision, N: int64(st.Used)})
		return nil
	}}
}

// watch takes some states, or what comes within the bound.
func (q semaphore) watch(bound time.Duration) Operation {
	return q.call(history.Event{Name: "watch"}, bound, func(ctx context.Context, s *concurrency.Semaphore) error {
		last, left := int64(0), 10
		for st, err := range s.Watch(ctx) {
			if err != nil {
				if errors.Is(err, context.DeadlineExceeded) {
					return nil
				}
				return err
			}
			if st.Revision < last {
				return fmt.Errorf("watch goes back from revision %d to %d", last, st.Revision)
			}
			last = st.Revision
			if left--; left == 0 {
				break
			}
		}
		return nil
	})
}

func (q semaphore) setLimit(limit int, bound time.Duration) Operation {
	return q.call(history.Event{Name: history.SetLimit, Limit: int64(limit)}, bound, func(ctx context.Context, s *concurrency.Semaphore) error {
		return s.SetLimit(ctx, limit, concurrency.CreateLimit())
	})
}

// endID evicts or releases the request with an ID.
func (q semaphore) endID(id string, evict bool, bound time.Duration) Operation {
	if evict {
		return q.call(history.Event{Name: history.Evict, ID: id}, bound, func(ctx context.Context, s *concurrency.Semaphore) error {
			return s.Evict(ctx, id, "chaos")
		})
	}
	return q.call(history.Event{Name: history.ReleaseID, ID: id}, bound, func(ctx context.Context, s *concurrency.Semaphore) error {
		return s.ReleaseID(ctx, id)
	})
}

// evictToken evicts a holder or a waiter.
func (q semaphore) evictToken(which uint64, bound time.Duration) Operation {
	return Operation{Name: history.EvictToken + " " + q.name, Do: func(ctx context.Context, p *Process) error {
		sem, err := q.on(p)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		st, err := sem.Status(ctx)
		all := slices.Concat(st.Holders, st.Waiters)
		if err != nil || len(all) == 0 {
			return err
		}
		token := all[which%uint64(len(all))].Token
		return p.call(ctx, history.Event{Name: history.EvictToken, Gate: q.gate(), Token: token}, func() error {
			return sem.EvictToken(ctx, token, "chaos")
		})
	}}
}

// Probe implements Workload: each semaphore takes its first limit again, and grants a
// permit for as much as may be asked for.
func (s *Semaphores) Probe(ctx context.Context, p *Process) error {
	for _, q := range s.all {
		sem, err := q.on(p)
		if err != nil {
			return err
		}
		if !q.steady {
			if err := p.call(ctx, history.Event{Name: history.SetLimit, Gate: q.gate(), Limit: int64(q.limit)}, func() error {
				return sem.SetLimit(ctx, q.limit, concurrency.CreateLimit())
			}); err != nil {
				return fmt.Errorf("limit of %s: %w", q.name, err)
			}
		}
		if err := q.grants(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// grants returns an error unless a permit is granted for as much as may be asked for.
func (q semaphore) grants(ctx context.Context, p *Process) error {
	sem, err := q.on(p)
	if err != nil {
		return err
	}
	a := plain(q.gate(), q.heavy, nil)
	if err := a.run(ctx, p, asker{acquire: sem.Acquire, try: sem.TryAcquire, do: sem.Do}); err != nil {
		return fmt.Errorf("permit of %s: %w", q.name, err)
	}
	return nil
}
