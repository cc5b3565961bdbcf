package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// Pace is how busy a process is.
type Pace struct {
	Every  time.Duration // between two calls of each kind of work, on average
	Retain time.Duration // of outcomes
	Ticks  time.Duration // between two fire times of a job
}

// rateEach is how many tokens a process takes in a row; then it leaves the rate alone, so that it returns its shares.
const rateEach = 30

// Process is a client with a session and a value of each primitive, as one process of a service has them. Work may be
// called again when it has returned.
type Process struct {
	name    string
	client  *clientv3.Client
	session *concurrency.Session
	pace    Pace

	semaphore *concurrency.Semaphore
	limiter   *concurrency.KeyedLimiter
	rate      *concurrency.RateLimiter
	election  *concurrency.Election
	locker    *schedlock.Locker
	store     *idempotency.Store

	next  atomic.Int64 // of names that are used once
	Tally *Tally
}

// Tally counts the calls of a load. Its methods may be called concurrently.
type Tally struct {
	mu     sync.Mutex
	calls  map[string]int
	failed map[string]int
	first  map[string]error
}

// NewTally returns a tally without calls.
func NewTally() *Tally {
	return &Tally{calls: map[string]int{}, failed: map[string]int{}, first: map[string]error{}}
}

func (t *Tally) add(kind string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls[kind]++
	if err != nil {
		if t.failed[kind]++; t.first[kind] == nil {
			t.first[kind] = err
		}
	}
}

// Total returns how many calls there were, how many have failed, and the first failure of each kind.
func (t *Tally) Total() (calls, failed int, first error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []error
	for kind, n := range t.calls {
		calls, failed = calls+n, failed+t.failed[kind]
		if err := t.first[kind]; err != nil {
			all = append(all, fmt.Errorf("%s: %w", kind, err))
		}
	}
	return calls, failed, errors.Join(all...)
}

// Kinds returns how many calls of each kind there were.
func (t *Tally) Kinds() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	kinds := map[string]int{}
	for kind, n := range t.calls {
		kinds[kind] = n
	}
	return kinds
}

const namespace = "soak"

// Open makes a process on a client.
func Open(ctx context.Context, client *clientv3.Client, name string, pace Pace, tally *Tally) (_ *Process, err error) {
	p := &Process{name: name, client: client, pace: pace, Tally: tally}
	if p.session, err = concurrency.NewSession(ctx, client, namespace, &concurrency.SessionOptions{Owner: name}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = p.Close(ctx)
		}
	}()
	if p.semaphore, err = concurrency.NewSemaphore(p.session, "reports", 2, nil); err != nil {
		return nil, err
	}
	if p.limiter, err = concurrency.NewKeyedLimiter(p.session, "tenants", 2, &concurrency.KeyedLimiterOptions{Total: 4}); err != nil {
		return nil, err
	}
	if p.rate, err = concurrency.NewRateLimiter(p.session, "partner", concurrency.Rate{PerSecond: float64(time.Second) / float64(pace.Every) * 10, Burst: 10}, nil); err != nil {
		return nil, err
	}
	if p.election, err = concurrency.NewElection(p.session, "leader"); err != nil {
		return nil, err
	}
	if p.locker, err = schedlock.New(p.session, nil); err != nil {
		return nil, err
	}
	p.store, err = idempotency.NewStore(p.session, "payments", &idempotency.Options{SingleTenant: true, Retain: pace.Retain, RetainUnknown: pace.Retain})
	return p, err
}

// Close ends the session.
func (p *Process) Close(ctx context.Context) error { return p.session.Close(ctx) }

// callTimeout bounds each call.
const callTimeout = time.Minute

// Work does work of each kind until ctx ends, and returns when its calls have ended. No call is interrupted.
func (p *Process) Work(ctx context.Context, seed uint64) {
	var wg sync.WaitGroup
	for i, w := range []struct {
		kind  string
		every time.Duration
		call  func(ctx context.Context) error
	}{
		{"semaphore", p.pace.Every, p.limited},
		{"key of a limiter", p.pace.Every, p.keyed},
		{"rate", p.pace.Every * 60, p.rated},
		{"election", p.pace.Every * 10, p.lead},
		{"tick", p.pace.Ticks, p.tick},
		{"request", p.pace.Every, p.request},
		{"session", p.pace.Every * 30, p.shortSession},
	} {
		r := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // a load that can be repeated
		wg.Go(func() {
			for p.pause(ctx, w.every, r) {
				bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
				p.Tally.add(w.kind, w.call(bounded))
				cancel()
			}
		})
	}
	wg.Wait()
}

// pause waits for half to one and a half times a period, and reports whether the work continues.
func (p *Process) pause(ctx context.Context, every time.Duration, r *rand.Rand) bool {
	t := time.NewTimer(every/2 + time.Duration(r.Int64N(int64(every))))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// hold is the work under a permit.
func (p *Process) hold(context.Context, *concurrency.Permit) error {
	time.Sleep(p.pace.Every / 2)
	return nil
}

func (p *Process) limited(ctx context.Context) error { return p.semaphore.Do(ctx, p.hold) }

// keyed uses each key a few times and never again, as tenants come and go.
func (p *Process) keyed(ctx context.Context) error {
	return p.limiter.Key(fmt.Sprintf("tenant-%d", p.next.Add(1)/3)).Do(ctx, p.hold)
}

func (p *Process) rated(ctx context.Context) error {
	for range rateEach {
		if err := p.rate.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *Process) lead(ctx context.Context) error {
	term, err := p.election.Campaign(ctx, concurrency.Note(p.name))
	if err != nil {
		return err
	}
	_ = p.hold(ctx, term)
	return term.Release(ctx)
}

func (p *Process) tick(ctx context.Context) error {
	_, err := p.locker.Do(ctx, "invoices", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(time.Now().Truncate(p.pace.Ticks)))
	return err
}

// request is a new request, or a duplicate of one that any process has begun.
func (p *Process) request(ctx context.Context) error {
	id := fmt.Sprint("order-", time.Now().UnixNano()/int64(p.pace.Every))
	_, err := idempotency.Do(ctx, p.store, idempotency.Key{Op: "POST /payments", ID: id}, "payload",
		func(context.Context, *idempotency.Attempt) (string, error) { return "charged", nil })
	return err
}

// shortSession is a worker that comes and goes.
func (p *Process) shortSession(ctx context.Context) error {
	s, err := concurrency.NewSession(ctx, p.client, namespace, nil)
	if err != nil {
		return err
	}
	sem, err := concurrency.NewSemaphore(s, "reports", 2, nil)
	if err == nil {
		err = sem.Do(ctx, p.hold)
	}
	return errors.Join(err, s.Close(ctx))
}
