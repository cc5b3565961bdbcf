package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/join"
)

// promiseOfPermits is a promise of package concurrency, with its test.
type promiseOfPermits struct {
	name, text string
	try        func(ctx context.Context, s *scratch, d time.Duration) error
}

var promisesOfPermits = []promiseOfPermits{
	{"Limit", "no more permits are held at a time than the limit allows, in many sessions", limitIsKept},
	{"Order", "requests are admitted in the order in which etcd has recorded them", orderIsKept},
	{"Guard", "a Txn with a permit's guard takes effect while etcd has the permit's key, and not afterwards", guardRefuses},
	{"Loss", "a permit whose lease is gone is lost, and its slot goes to the next request", lossIsNoticed},
}

// limitIsKept counts holders in this process, outside the store.
func limitIsKept(ctx context.Context, s *scratch, d time.Duration) error {
	const limit, sessions, workers = 3, 4, 3
	ctx, cancel := context.WithTimeout(ctx, d+4*s.call.Etcd.Timeout)
	defer cancel()
	var sems []*concurrency.Semaphore
	for n := range sessions {
		sess, err := s.session(ctx, brisk(fmt.Sprintf("session %d", n)))
		if err != nil {
			return err
		}
		sem, err := concurrency.NewSemaphore(sess, "limit", 0, &concurrency.SemaphoreOptions{AdoptLimit: true})
		if err == nil && n == 0 {
			err = sem.SetLimit(ctx, limit, concurrency.CreateLimit())
		}
		if err != nil {
			return err
		}
		sems = append(sems, sem)
	}
	var inside, most, granted atomic.Int64
	work := func(context.Context, *concurrency.Permit) error { //nolint:unparam // Run asks for it
		for now := inside.Add(1); ; {
			if max := most.Load(); now <= max || most.CompareAndSwap(max, now) {
				break
			}
		}
		granted.Add(1)
		time.Sleep(time.Millisecond)
		inside.Add(-1)
		return nil
	}
	until := time.Now().Add(d) // not before: to open the sessions may take longer than that
	var all sync.WaitGroup
	failed := make(chan error, sessions*workers)
	for n := range sessions * workers {
		all.Go(func() {
			for again := true; again; again = time.Now().Before(until) {
				if err := sems[n%sessions].Do(ctx, work); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	if err := <-failed; err != nil {
		return err
	}
	switch {
	case most.Load() > limit:
		return fmt.Errorf("%d permits were held at a time under a limit of %d", most.Load(), limit)
	case granted.Load() == 0:
		return errors.New("no permit was granted")
	}
	return nil
}

// orderIsKept queues requests one after the other behind a holder, and compares the order of admission.
func orderIsKept(ctx context.Context, s *scratch, _ time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 4*s.call.Etcd.Timeout)
	defer cancel()
	sess, err := s.session(ctx, brisk("holder"))
	if err != nil {
		return err
	}
	held, err := concurrency.NewMutex(sess, "order")
	if err != nil {
		return err
	}
	first, err := held.Lock(ctx)
	if err != nil {
		return err
	}
	const waiters = 5
	admitted := make(chan int, waiters)
	failed := make(chan error, waiters)
	for n := range waiters {
		if err := joinOrder(ctx, s, n, admitted, failed); err != nil {
			return err
		}
		for st, err := range held.Watch(ctx) {
			if err != nil {
				return err
			}
			if len(st.Waiters) == n+1 {
				break
			}
		}
	}
	if err := first.Release(ctx); err != nil {
		return err
	}
	for range waiters {
		if err := <-failed; err != nil {
			return err
		}
	}
	close(admitted)
	var order []int
	for n := range admitted {
		order = append(order, n)
	}
	if !slices.IsSorted(order) {
		return fmt.Errorf("requests 0 to %d were admitted in the order %v", waiters-1, order)
	}
	return nil
}

// joinOrder requests the mutex of orderIsKept in a session of its own. Once the request is admitted, its number
// is sent to admitted, and when it has ended, its error or nil to failed.
func joinOrder(ctx context.Context, s *scratch, n int, admitted chan<- int, failed chan<- error) error {
	sess, err := s.session(ctx, brisk(fmt.Sprintf("waiter %d", n)))
	if err != nil {
		return err
	}
	m, err := concurrency.NewMutex(sess, "order")
	if err != nil {
		return err
	}
	go func() {
		p, err := m.Lock(ctx)
		if err == nil {
			admitted <- n
			err = p.Release(ctx)
		}
		failed <- err
	}()
	return nil
}

// guardRefuses writes with a guard, ends the permit by force, and writes again.
func guardRefuses(ctx context.Context, s *scratch, _ time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 4*s.call.Etcd.Timeout)
	defer cancel()
	sess, err := s.session(ctx, brisk("holder"))
	if err != nil {
		return err
	}
	m, err := concurrency.NewMutex(sess, "guard")
	if err != nil {
		return err
	}
	p, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	write := func() (bool, error) {
		resp, err := s.etcd.Txn(ctx).If(p.Guard()).Then(clientv3.OpPut(s.space.Root()+"written", "x")).Commit()
		return err == nil && resp.Succeeded, err
	}
	if done, err := write(); err != nil || !done {
		return cmp.Or(err, errors.New("a Txn with the guard of a held permit had no effect"))
	}
	by, err := s.session(ctx, brisk("operator"))
	if err != nil {
		return err
	}
	operator, err := concurrency.NewMutex(by, "guard")
	if err != nil {
		return err
	}
	if err := operator.EvictToken(ctx, p.Token(), "conformance"); err != nil {
		return err
	}
	if done, err := write(); err != nil || done {
		return cmp.Or(err, errors.New("a Txn with the guard of an evicted permit took effect"))
	}
	select {
	case <-p.Context().Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the holder did not notice that it was evicted: %w", ctx.Err())
	}
}

// lossIsNoticed revokes the lease of a holder while another request waits.
func lossIsNoticed(ctx context.Context, s *scratch, _ time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*s.call.Etcd.Timeout)
	defer cancel()
	dies, err := s.session(ctx, brisk("holder"))
	if err != nil {
		return err
	}
	m, err := concurrency.NewMutex(dies, "loss")
	if err != nil {
		return err
	}
	p, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	next, err := s.session(ctx, brisk("waiter"))
	if err != nil {
		return err
	}
	other, err := concurrency.NewMutex(next, "loss")
	if err != nil {
		return err
	}
	if _, err := s.etcd.Revoke(ctx, dies.Lease()); err != nil {
		return err
	}
	q, err := other.Lock(ctx)
	if err != nil {
		return fmt.Errorf("the next request was not admitted: %w", err)
	}
	defer func() { err = join.Errors(err, q.Release(context.WithoutCancel(ctx))) }()
	if q.Token() <= p.Token() {
		return fmt.Errorf("token %d of the later permit is not above token %d", q.Token(), p.Token())
	}
	select {
	case <-p.Context().Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the holder did not notice that its lease is gone: %w", ctx.Err())
	}
}
