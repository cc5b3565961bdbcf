package virtual

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// worksOf are the ways in which work can be in progress on a session. Each returns the error of the work.
var worksOf = map[string]func(d *desk, fn func(ctx context.Context) error) error{
	"a permit": func(d *desk, fn func(ctx context.Context) error) error {
		return d.named(1, 5).Do(context.Background(), func(ctx context.Context, _ *concurrency.Permit) error { return fn(ctx) })
	},
	"a run": func(d *desk, fn func(ctx context.Context) error) error {
		res, err := d.locker().Do(context.Background(), "invoices", func(ctx context.Context, _ *schedlock.Run) error { return fn(ctx) }, fireTime(1), schedlock.Retries(3))
		if err == nil {
			require.Equal(d.t, schedlock.Ran, res.Outcome)
		}
		return err
	},
	"an attempt": func(d *desk, fn func(ctx context.Context) error) error {
		_, err := idempotency.Do(context.Background(), d.storeOf(idempotency.Options{OnLost: idempotency.Refuse}), order("1"), "payload",
			func(ctx context.Context, _ *idempotency.Attempt) (int, error) { return 1, fn(ctx) })
		return err
	},
}

// partsOfWork are calls, each of which needs the session.
var partsOfWork = map[string]func(d *desk) func(ctx context.Context) error{
	"a permit":                func(d *desk) func(ctx context.Context) error { return had(d.named(2, 5)) },
	"a permit that is kept":   func(d *desk) func(ctx context.Context) error { return had(d.keeping(5, time.Second)) },
	"a permit that is passed": func(d *desk) func(ctx context.Context) error { return had(d.passing(5, time.Second)) },
	"a token":                 func(d *desk) func(ctx context.Context) error { return d.rate(100, 10).Wait },
	"a request": func(d *desk) func(ctx context.Context) error {
		store, n := d.storeOf(idempotency.Options{}), 0
		return func(ctx context.Context) error {
			n++
			_, err := idempotency.Do(ctx, store, order(fmt.Sprint("part", n)), "payload", func(context.Context, *idempotency.Attempt) (int, error) { return 1, nil })
			return err
		}
	},
	"a part of a part": func(d *desk) func(ctx context.Context) error {
		sem, rate := d.named(2, 5), d.rate(100, 10)
		return func(ctx context.Context) error {
			return sem.Do(ctx, func(ctx context.Context, _ *concurrency.Permit) error { return rate.Wait(ctx) })
		}
	},
}

// had returns a call that has a permit of a semaphore for a moment.
func had(sem *concurrency.Semaphore) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return sem.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil })
	}
}

// A740: Close waits for work in progress, and refused at once what that needs of the same session: a run and the work of a permit
// failed, and a payment was unknown. What begins no part of such work gets ErrClosed.
func TestCloseWaitsForWholeWork(t *testing.T) {
	t.Parallel()
	for work, begin := range worksOf {
		for part, partOf := range partsOfWork {
			t.Run(part+" of "+work, func(t *testing.T) {
				t.Parallel()
				bubble(t, 1, func(t *testing.T, on []*desk) { closesDuring(t, on[0], begin, partOf(on[0])) })
			})
		}
	}
}

// closesDuring has Close begin while work is in progress, which needs that part then.
func closesDuring(t *testing.T, d *desk, work func(d *desk, fn func(ctx context.Context) error) error, part func(ctx context.Context) error) {
	began, closing, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var over context.Context
	go func() {
		done <- work(d, func(ctx context.Context) error {
			over = ctx
			if err := part(ctx); err != nil {
				return err
			}
			close(began)
			<-closing
			if err := part(ctx); err != nil {
				return err
			}
			return part(ctx)
		})
	}()
	<-began
	closed := make(chan error, 1)
	begun := time.Now()
	go func() { closed <- d.session.Close(within(t, time.Minute)) }()
	synctest.Wait()
	require.ErrorIs(t, part(t.Context()), concurrency.ErrClosed, "it is no part of the work")
	require.ErrorIs(t, part(context.WithoutCancel(t.Context())), concurrency.ErrClosed)
	close(closing)
	require.NoError(t, <-done)
	require.NoError(t, <-closed)
	require.Less(t, time.Since(begun), 5*time.Second)
	require.ErrorIs(t, part(context.WithoutCancel(over)), concurrency.ErrClosed, "the work has ended")
}

// A740: a part that waits when Close begins goes on waiting.
func TestPartWaitsWhileCloseDoes(t *testing.T) {
	t.Parallel()
	for name, semaphore := range map[string]func(d *desk) *concurrency.Semaphore{
		"in etcd's queue":    func(d *desk) *concurrency.Semaphore { return d.semaphore(1) },
		"in the local queue": func(d *desk) *concurrency.Semaphore { return d.passing(1, time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, on []*desk) {
				d := on[0]
				other := on[1].acquire()
				sem := semaphore(d)
				done, fresh, closed := make(chan error, 1), make(chan error, 1), make(chan error, 1)
				go func() { done <- worksOf["a run"](d, had(sem)) }()
				go func() { fresh <- had(sem)(context.Background()) }()
				time.Sleep(time.Second)
				go func() { closed <- d.session.Close(within(t, time.Minute)) }()
				require.ErrorIs(t, <-fresh, concurrency.ErrClosed)
				time.Sleep(time.Second)
				require.Empty(t, done)
				require.NoError(t, other.Release(t.Context()))
				require.NoError(t, <-done)
				require.NoError(t, <-closed)
			})
		})
	}
}

// A741: work that takes one permit after the other for ever ends when Close waits no longer, and Close names it. So does a part
// that waits for what does not come.
func TestPartsEndWithTheWaitOfClose(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(d *desk) func(ctx context.Context) error{
		"it takes permits": func(d *desk) func(ctx context.Context) error { return had(d.named(2, 5)) },
		"it takes tokens":  func(d *desk) func(ctx context.Context) error { return d.rate(100, 10).Wait },
		"it waits":         func(d *desk) func(ctx context.Context) error { return had(d.semaphore(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, on []*desk) {
				d := on[0]
				on[1].acquire()
				began, done := make(chan struct{}), make(chan error, 1)
				store, part := d.storeOf(idempotency.Options{}), of(d)
				go func() {
					_, err := idempotency.Do(context.Background(), store, order("1"), "payload", func(ctx context.Context, _ *idempotency.Attempt) (int, error) {
						close(began)
						for ctx = context.WithoutCancel(ctx); ; time.Sleep(10 * time.Millisecond) {
							if err := part(ctx); err != nil {
								return 0, err
							}
						}
					})
					done <- err
				}()
				<-began
				begun := time.Now()
				err := d.session.Close(within(t, 10*time.Second))
				require.InDelta(t, 10, time.Since(begun).Seconds(), 3)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "attempts of requests: 1")
				require.NotContains(t, err.Error(), "rate", "its share is no work")
				require.ErrorIs(t, <-done, concurrency.ErrClosed)
			})
		})
	}
}

// A748: a run that begins while Close waits would be asked to stop at once, and its tick lost to the other processes. So a call of
// a job within work in progress returns ErrClosed, and another process has the tick.
func TestRunIsNoPart(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d := on[0]
		locker, part := d.locker(), had(d.named(3, 5))
		began, closing, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			done <- worksOf["a permit"](d, func(ctx context.Context) error {
				close(began)
				<-closing
				_, err := locker.Do(ctx, "part", noWork, fireTime(1))
				if other := part(ctx); other != nil {
					return other
				}
				return err
			})
		}()
		<-began
		closed := make(chan error, 1)
		go func() { closed <- d.session.Close(within(t, time.Minute)) }()
		synctest.Wait()
		close(closing)
		require.ErrorIs(t, <-done, concurrency.ErrClosed)
		require.NoError(t, <-closed)
		res, err := on[1].locker().Do(t.Context(), "part", noWork, fireTime(1))
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
	})
}

// A749: a Watch within work in progress goes on while Close waits for that.
func TestWatchWithinWork(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		sem, began, closing, done := d.named(2, 5), make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			done <- worksOf["a permit"](d, func(ctx context.Context) error {
				n := 0
				for _, err := range sem.Watch(ctx) {
					if err != nil {
						return err
					}
					if n++; n == 1 {
						close(began)
						<-closing
						go func() { _ = had(sem)(ctx) }()
						continue
					}
					return nil
				}
				return nil
			})
		}()
		<-began
		closed := make(chan error, 1)
		go func() { closed <- d.session.Close(within(t, time.Minute)) }()
		synctest.Wait()
		close(closing)
		require.NoError(t, <-done)
		require.NoError(t, <-closed)
	})
}
