package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Of the store of requests. Times are short, so that records expire and their keys are
// used again.
const (
	storeName     = "requests"
	storeRetain   = 3 * time.Second
	retainUnknown = 9 * time.Second // its leases outlive a call to a member that swallows it
	cacheFor      = 500 * time.Millisecond
	// crowds is one in how many calls is a crowd of them, for as many keys of their own.
	crowds = 30
)

// asked is one idempotency key of the workload.
type asked struct {
	key    idempotency.Key
	onLost idempotency.LostPolicy
	retain time.Duration
}

// gate is how a history calls it: the record's key.
func (k asked) gate(space keyspace.Space) string {
	return strings.TrimPrefix(space.Store(storeName).Entry(k.key.Scope, k.key.Op, k.key.ID).Record, space.Root())
}

// Requests is the Workload for idempotency. All processes ask for few keys, so that
// duplicates meet: at the same time, after an outcome, after a loss and after its end. Now
// and then a crowd comes at once, so that writes go together.
type Requests struct {
	all     []asked
	crowded []asked // a crowd asks for these

	mu     sync.Mutex
	stores map[*Process]*requestStore
}

type requestStore struct {
	*idempotency.Store
	sess *concurrency.Session
}

// NewRequests returns requests of several kinds. Crowd is how many come at once, or 0.
func NewRequests(crowd int) *Requests {
	s := &Requests{stores: map[*Process]*requestStore{}}
	for n := range 30 + crowd {
		k := asked{key: idempotency.Key{Scope: fmt.Sprintf("tenant-%d", n%2), Op: "pay", ID: fmt.Sprintf("key-%d", n)}, retain: storeRetain}
		if n%3 == 0 {
			k.onLost = idempotency.Refuse
		}
		if n%2 == 0 {
			k.retain = time.Second
		}
		s.all = append(s.all, k)
	}
	s.all, s.crowded = s.all[:30], s.all[30:]
	return s
}

// DeclareRequests records for the checkers for how long records are retained.
func DeclareRequests(r *history.Recorder) {
	r.Set(check.SettingRetain, storeRetain.String())
	r.Set(check.SettingCacheFor, cacheFor.String())
}

// Name implements Workload.
func (*Requests) Name() string { return "requests" }

// Queues implements Workload. A request has no queue.
func (*Requests) Queues(keyspace.Space) []keyspace.Queue { return nil }

// on returns the store of a process's session.
func (s *Requests) on(p *Process) (*requestStore, error) {
	sess, err := p.Kit()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.stores[p]; st != nil && st.sess == sess {
		return st, nil
	}
	st := &requestStore{sess: sess}
	if st.Store, err = idempotency.NewStore(sess, storeName, &idempotency.Options{
		Retain: storeRetain, RetainUnknown: retainUnknown, CacheFor: cacheFor, MaxExecution: time.Minute,
	}); err != nil {
		return nil, err
	}
	s.stores[p] = st
	return st, nil
}

// Plan implements Workload.
func (s *Requests) Plan(r *rand.Rand) Operation {
	k := s.all[r.IntN(len(s.all))]
	bound := time.Duration(100+r.IntN(3000)) * time.Millisecond
	switch n := r.IntN(100); {
	case n < 3:
		return s.with(history.RequestDelete, k, bound, func(ctx context.Context, st *requestStore) error {
			return st.Delete(ctx, st.Ref(k.key), idempotency.EvenIfAlive())
		})
	case n < 12:
		what := []idempotency.Resolution{idempotency.NotDone(), idempotency.HasFailed("by hand"), idempotency.WasDone([]byte(`"by hand"`))}[r.IntN(3)]
		even := []idempotency.ChangeOption{idempotency.EvenIfAlive()}[:r.IntN(2)] // half of the NotDone wait for the process
		return s.with(history.RequestResolve, k, bound, func(ctx context.Context, st *requestStore) error {
			return st.Resolve(ctx, st.Ref(k.key), what, even...)
		})
	case n < 16:
		return s.with("request.list", k, bound, func(ctx context.Context, st *requestStore) error {
			for _, err := range st.List(ctx, idempotency.Filter{Scope: &k.key.Scope}) {
				if err != nil {
					return err
				}
			}
			_, _, err := st.Get(ctx, st.Ref(k.key))
			return err
		})
	}
	calls := []requestCall{drawRequestCall(r, k)}
	if r.IntN(crowds) == 0 {
		likely := r.IntN(4) != 0
		for len(calls) < len(s.crowded) {
			o := drawRequestCall(r, s.crowded[r.IntN(len(s.crowded))])
			o.likelyNew = likely
			calls = append(calls, o)
		}
	}
	return Operation{Name: history.RequestDo, Do: func(ctx context.Context, p *Process) error {
		st, err := s.on(p)
		if err != nil {
			return err
		}
		errs := make([]error, len(calls))
		var wg sync.WaitGroup
		for i, o := range calls {
			wg.Go(func() { errs[i] = o.run(ctx, p, st) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}}
}

// with is an operation that takes no longer than bound.
func (s *Requests) with(name string, k asked, bound time.Duration, do func(context.Context, *requestStore) error) Operation {
	return Operation{Name: name, Do: func(ctx context.Context, p *Process) error {
		st, err := s.on(p)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		return p.call(ctx, history.Event{Name: name, Gate: k.gate(p.Env.Space)}, func() error { return do(ctx, st) })
	}}
}

// Probe implements Workload: a request is done, by any process, and its duplicate gets
// the outcome; and the state of all others is known.
func (s *Requests) Probe(ctx context.Context, p *Process) error {
	k := asked{key: idempotency.Key{Scope: "probe", Op: "pay", ID: "all"}, retain: storeRetain}
	for range 2 {
		if err := s.probe(ctx, p, k); err != nil {
			return fmt.Errorf("request %v: %w", k.key, err)
		}
	}
	for _, k := range slices.Concat(s.all, s.crowded) {
		err := s.probe(ctx, p, k)
		for _, known := range []error{idempotency.ErrUnknown, idempotency.ErrFailed, idempotency.ErrMismatch} {
			if errors.Is(err, known) {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("request %v: %w", k.key, err)
		}
	}
	return nil
}

func (s *Requests) probe(ctx context.Context, p *Process, k asked) error {
	for {
		st, err := s.on(p)
		if err != nil {
			return err
		}
		o := requestCall{asked: k, bound: 10 * time.Second, payload: payloads[0], atMost: time.Minute}
		err = o.run(ctx, p, st)
		// It may not know yet that there is space again, and a busy machine may cost
		// a lease even now.
		again := errors.Is(err, idempotency.ErrNearQuota) || errors.Is(err, idempotency.ErrNotRecorded) || errors.Is(err, idempotency.ErrFenced)
		if !again || Sleep(ctx, 200*time.Millisecond) != nil {
			return err
		}
	}
}
