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

// Keyed is the Workload for concurrency.KeyedLimiter: a few keys of one limiter.
type Keyed struct {
	name  string
	limit int // the default
	all   []semaphore
}

// NewKeyed returns a limiter with keys of which one begins like another, with weights and IDs.
func NewKeyed() *Keyed {
	k := &Keyed{name: "tenants", limit: 3}
	for _, key := range []string{"a", "ab", "b"} {
		k.all = append(k.all, semaphore{name: key, limiter: k.name, limit: k.limit, heavy: 2, ids: 3})
	}
	return k
}

// Name implements Workload.
func (*Keyed) Name() string { return "keyed" }

// Queues implements Workload.
func (k *Keyed) Queues(space keyspace.Space) (queues []keyspace.Queue) {
	for _, q := range k.all {
		queues = append(queues, space.Limiter(k.name).Key(q.name))
	}
	return queues
}

// Plan implements Workload.
func (k *Keyed) Plan(r *rand.Rand) Operation {
	q := k.all[r.IntN(len(k.all))]
	bound := time.Duration(100+r.IntN(3000)) * time.Millisecond
	switch n := r.IntN(100); {
	case n < 92:
		return q.plan(r, bound)
	case n < 95:
		return k.clearLimit(q, bound)
	default:
		return k.setDefault(r.IntN(k.limit+2), bound)
	}
}

func (k *Keyed) setDefault(limit int, bound time.Duration) Operation {
	e := history.Event{Name: history.SetDefault, Gate: "limiter/" + k.name, Limit: int64(limit)}
	return k.call(e, bound, func(ctx context.Context, l *concurrency.KeyedLimiter) error {
		return l.SetDefault(ctx, limit, concurrency.CreateLimit())
	})
}

func (k *Keyed) clearLimit(q semaphore, bound time.Duration) Operation {
	e := history.Event{Name: history.ClearLimit, Gate: q.gate()}
	return k.call(e, bound, func(ctx context.Context, l *concurrency.KeyedLimiter) error { return l.ClearLimit(ctx, q.name) })
}

// call is an operation of the limiter that only returns an error.
func (k *Keyed) call(e history.Event, bound time.Duration, do func(context.Context, *concurrency.KeyedLimiter) error) Operation {
	return Operation{Name: e.Name + " " + k.name, Do: func(ctx context.Context, p *Process) error {
		s, err := p.Kit()
		if err != nil {
			return err
		}
		l, err := concurrency.NewKeyedLimiter(s, k.name, k.limit, &concurrency.KeyedLimiterOptions{AdoptLimit: true})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		return p.call(ctx, e, func() error { return do(ctx, l) })
	}}
}

// Probe implements Workload: the limiter takes its first default again, and each key grants a permit
// for as much as may be asked for.
func (k *Keyed) Probe(ctx context.Context, p *Process) error {
	if err := k.setDefault(k.limit, recovery).Do(ctx, p); err != nil {
		return fmt.Errorf("default of %s: %w", k.name, err)
	}
	for _, q := range k.all {
		if err := k.clearLimit(q, recovery).Do(ctx, p); err != nil {
			return fmt.Errorf("limit of %s: %w", q.name, err)
		}
		if err := q.grants(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
