package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Keyed is the Workload for concurrency.KeyedLimiter: a few keys of a limiter, and the same of one with
// a total.
type Keyed struct{ all []limiter }

// limiter is one of the workload's.
type limiter struct {
	name  string
	limit int // the default
	keys  []semaphore
	total *semaphore // or nil
}

// NewKeyed returns limiters with keys of which one begins like another, with weights and IDs.
func NewKeyed() *Keyed {
	return &Keyed{all: []limiter{newLimiter("tenants", 3, 0), newLimiter("models", 2, 4)}}
}

func newLimiter(name string, limit, total int) limiter {
	l := limiter{name: name, limit: limit}
	for _, key := range []string{"a", "ab", "b"} {
		l.keys = append(l.keys, semaphore{name: key, limiter: name, limit: limit, total: total, heavy: 2, ids: 3})
	}
	if total > 0 {
		l.total = &semaphore{name: name, limiter: name, limit: limit, total: total, all: true}
	}
	return l
}

// Name implements Workload.
func (*Keyed) Name() string { return "keyed" }

// Queues implements Workload.
func (k *Keyed) Queues(space keyspace.Space) (queues []keyspace.Queue) {
	for _, l := range k.all {
		of := space.Limiter(l.name)
		for _, q := range l.keys {
			queues = append(queues, of.Key(q.name))
		}
		if l.total != nil {
			queues = append(queues, of.Total())
		}
	}
	return queues
}

// Plan implements Workload.
func (k *Keyed) Plan(r *rand.Rand) Operation {
	l := k.all[r.IntN(len(k.all))]
	q := l.keys[r.IntN(len(l.keys))]
	bound := time.Duration(100+r.IntN(3000)) * time.Millisecond
	switch n := r.IntN(100); {
	case n < 6 && l.total != nil:
		return l.planTotal(r, bound)
	case n < 92:
		return q.plan(r, bound)
	case n < 95:
		return l.clearLimit(q, bound)
	default:
		return l.setDefault(r.IntN(l.limit+2), bound)
	}
}

// planTotal draws an operation of the total, which acquires no permit.
func (l limiter) planTotal(r *rand.Rand, bound time.Duration) Operation {
	switch r.IntN(4) {
	case 0:
		return l.total.status(bound)
	case 1:
		return l.total.evictToken(r.Uint64(), bound)
	case 2:
		return l.total.watch(bound)
	default:
		limit := l.total.total
		if r.IntN(2) == 0 {
			limit = r.IntN(limit + 2)
		}
		return l.total.setLimit(limit, bound)
	}
}

func (l limiter) setDefault(limit int, bound time.Duration) Operation {
	e := history.Event{Name: history.SetDefault, Gate: "limiter/" + l.name, Limit: int64(limit)}
	return l.call(e, bound, func(ctx context.Context, of *concurrency.KeyedLimiter) error {
		return of.SetDefault(ctx, limit, concurrency.CreateLimit())
	})
}

func (l limiter) clearLimit(q semaphore, bound time.Duration) Operation {
	e := history.Event{Name: history.ClearLimit, Gate: q.gate()}
	return l.call(e, bound, func(ctx context.Context, of *concurrency.KeyedLimiter) error { return of.ClearLimit(ctx, q.name) })
}

// call is an operation of the limiter that only returns an error.
func (l limiter) call(e history.Event, bound time.Duration, do func(context.Context, *concurrency.KeyedLimiter) error) Operation {
	return Operation{Name: e.Name + " " + l.name, Do: func(ctx context.Context, p *Process) error {
		s, err := p.Kit()
		if err != nil {
			return err
		}
		o := concurrency.KeyedLimiterOptions{AdoptLimit: true}
		if l.total != nil {
			o.Total = l.total.total
		}
		of, err := concurrency.NewKeyedLimiter(s, l.name, l.limit, &o)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		return p.call(ctx, e, func() error { return do(ctx, of) })
	}}
}

// Probe implements Workload: each limiter takes its first limits again, and each key grants a permit
// for as much as may be asked for.
func (k *Keyed) Probe(ctx context.Context, p *Process) error {
	for _, l := range k.all {
		if err := l.probe(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (l limiter) probe(ctx context.Context, p *Process) error {
	if err := l.setDefault(l.limit, recovery).Do(ctx, p); err != nil {
		return fmt.Errorf("default of %s: %w", l.name, err)
	}
	if l.total != nil {
		if err := l.total.setLimit(l.total.total, recovery).Do(ctx, p); err != nil {
			return fmt.Errorf("total of %s: %w", l.name, err)
		}
	}
	for _, q := range l.keys {
		if err := l.clearLimit(q, recovery).Do(ctx, p); err != nil {
			return fmt.Errorf("limit of %s: %w", q.name, err)
		}
		if err := q.grants(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
