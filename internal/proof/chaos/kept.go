package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Kept is the Workload for semaphores with Keep and Handover, whose keys serve one caller of a process
// after the other.
type Kept struct{ Semaphores }

// NewKept returns semaphores with either option and with both. That without Handover has room for more
// callers than there mostly are: a request that waits ends keeping.
func NewKept() *Kept {
	v := &values{of: map[valueOf]*concurrency.Semaphore{}}
	return &Kept{Semaphores{all: []semaphore{
		{name: "kept", limit: 12, heavy: 2, ids: 3, keep: 200 * time.Millisecond, values: v},
		{name: "passed", limit: 2, heavy: 1, ids: 3, handover: 50 * time.Millisecond, values: v},
		{name: "both", limit: 3, heavy: 2, ids: 3, keep: 300 * time.Millisecond, handover: 100 * time.Millisecond, values: v},
	}}}
}

// values are the Semaphores of sessions: each keeps for its own calls, so all operations share one.
type values struct {
	mu sync.Mutex
	of map[valueOf]*concurrency.Semaphore
}

type valueOf struct {
	session *concurrency.Session
	name    string
}

func (v *values) on(s *concurrency.Session, q semaphore) (*concurrency.Semaphore, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	sem := v.of[valueOf{s, q.name}]
	if sem == nil {
		var err error
		if sem, err = concurrency.NewSemaphore(s, q.name, q.limit, &concurrency.SemaphoreOptions{AdoptLimit: true, Keep: q.keep, Handover: q.handover}); err != nil {
			return nil, err
		}
		v.of[valueOf{s, q.name}] = sem
	}
	return sem, nil
}

// Name implements Workload.
func (*Kept) Name() string { return "kept" }

// Plan implements Workload.
func (k *Kept) Plan(r *rand.Rand) Operation {
	q := k.all[r.IntN(len(k.all))]
	bound := time.Duration(100+r.IntN(3000)) * time.Millisecond
	switch n := r.IntN(100); {
	case n < 80:
		return q.burst(r)
	case n < 92:
		return q.evictToken(r.Uint64(), bound)
	case n < 96:
		return q.dip(r, bound)
	default:
		return q.plan(r, bound)
	}
}

// dip lowers the limit for a moment, often to zero.
func (q semaphore) dip(r *rand.Rand, bound time.Duration) Operation {
	low := q.setLimit(max(0, r.IntN(q.limit+1)-1), bound)
	back, pause := q.setLimit(q.limit, bound), time.Duration(r.IntN(300))*time.Millisecond
	return Operation{Name: low.Name, Do: func(ctx context.Context, p *Process) error {
		err := low.Do(ctx, p)
		_ = Sleep(ctx, pause)
		return errors.Join(err, back.Do(ctx, p))
	}}
}

// burst draws some callers of one process, each of which acquires one permit after the other.
func (q semaphore) burst(r *rand.Rand) Operation {
	callers := make([][]ask, 1+r.IntN(3))
	for i := range callers {
		for range 2 + r.IntN(5) {
			callers[i] = append(callers[i], q.brief(r))
		}
	}
	return Operation{Name: "burst " + q.name, Do: func(ctx context.Context, p *Process) error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		sem, err := q.on(p)
		if err != nil {
			return err
		}
		of := asker{acquire: sem.Acquire, try: sem.TryAcquire, do: sem.Do}
		var wg sync.WaitGroup
		errs := make([]error, len(callers))
		for i, asks := range callers {
			wg.Go(func() {
				for _, a := range asks {
					if ctx.Err() == nil {
						errs[i] = a.run(ctx, p, of)
					}
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	}}
}

// brief draws an acquisition of a burst. Most have nothing that prevents that the permit's key serves
// the next one: no weight, ID, note, token or guard.
func (q semaphore) brief(r *rand.Rand) ask {
	a := drawAsk(r)
	a.gate, a.shared = q.gate(), true
	ms := func(n int) time.Duration { return time.Duration(1+r.IntN(n)) * time.Millisecond }
	a.bound, a.hold, a.effects, a.late = min(a.bound, 50*time.Millisecond+ms(1500)), ms(12), 0, r.IntN(8) == 0
	if r.IntN(5) == 0 {
		a.hold = ms(60)
	}
	if a.maxHold > 0 {
		a.maxHold = ms(40) // above the hold it ends under the next caller, if anything does
	}
	if r.IntN(6) == 0 {
		a.effects = 1 + r.IntN(2)
	}
	switch r.IntN(12) {
	case 0:
		a.shared, a.id, a.takeOver = false, "1", r.IntN(4) == 0
	case 1:
		a.shared, a.weight = false, q.heavy
	}
	return a
}

// Probe implements Workload: more callers of the process than the limit admits get a permit each, most of
// them one that another has had.
func (k *Kept) Probe(ctx context.Context, p *Process) error {
	if err := k.Semaphores.Probe(ctx, p); err != nil {
		return err
	}
	for _, q := range k.all {
		sem, err := q.on(p)
		if err != nil {
			return err
		}
		a := plain(q.gate(), 1, nil)
		a.shared, a.effects, a.hold = true, 0, 5*time.Millisecond
		errs := make([]error, q.limit+3)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = a.run(ctx, p, asker{acquire: sem.Acquire, try: sem.TryAcquire, do: sem.Do}) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("permits of %s: %w", q.name, err)
		}
	}
	return nil
}
