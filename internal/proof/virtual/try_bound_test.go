package virtual

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// T1: a try is a question about now. Without a deadline in ctx it does not wait for an etcd
// that does not answer for longer than six seconds, and says that etcd is unavailable, at
// which endpoints, and how to choose another bound. With a deadline it waits until that,
// and a ctx that is cancelled ends it as ever.
func TestTryIsBounded(t *testing.T) {
	t.Parallel()
	const bound = 6 * time.Second
	for name, try := range map[string]func(ctx context.Context, d *desk) error{
		"TryAcquire": func(ctx context.Context, d *desk) error { _, err := d.semaphore(1).TryAcquire(ctx); return err },
		"TryAcquire with an ID": func(ctx context.Context, d *desk) error {
			_, err := d.semaphore(1).TryAcquire(ctx, concurrency.ID("i"), concurrency.TakeOver())
			return err
		},
		"TryLock": func(ctx context.Context, d *desk) error { _, err := mutexOf(d).TryLock(ctx); return err },
	} {
		for how, away := range aways {
			for when, after := range map[string]time.Duration{"held": 0, "between leases": time.Minute} {
				t.Run(fmt.Sprintf("%s, etcd %s, %s", name, how, when), func(t *testing.T) {
					t.Parallel()
					bubble(t, 2, func(t *testing.T, on []*desk) {
						on[0].hold()
						d := on[1]
						away(d.client)
						time.Sleep(after)
						took := func(ctx context.Context) (time.Duration, error) {
							begun := time.Now()
							ch := make(chan error, 1)
							go func() { ch <- try(ctx, d) }()
							select {
							case err := <-ch:
								return time.Since(begun), err
							case <-time.After(time.Hour):
								require.FailNow(t, "it does not return")
								panic("not reached")
							}
						}
						stop, cancel := context.WithCancel(context.Background())
						defer cancel()
						spent, err := took(stop)
						require.Equal(t, bound, spent)
						var u *concurrency.UnavailableError
						require.ErrorAs(t, err, &u)
						require.ErrorIs(t, err, concurrency.ErrUnavailable)
						require.NotErrorIs(t, err, context.DeadlineExceeded, "ctx has not ended")
						require.NotErrorIs(t, err, concurrency.ErrFull)
						require.ErrorContains(t, err, fmt.Sprint(d.client.Endpoints()))
						require.ErrorContains(t, err, "deadline in ctx")
						t.Log(err)

						spent, err = took(within(t, 20*time.Second))
						require.Equal(t, 20*time.Second, spent)
						require.ErrorIs(t, err, context.DeadlineExceeded)
						require.ErrorIs(t, err, concurrency.ErrUnavailable)

						time.AfterFunc(time.Second, cancel)
						spent, err = took(stop)
						require.Equal(t, time.Second, spent)
						require.ErrorIs(t, err, context.Canceled)

						d.client.Heal()
						time.Sleep(time.Minute)
						require.ErrorIs(t, try(context.Background(), d), concurrency.ErrFull)
					})
				})
			}
		}
	}
}

// Wait(0) is a try whose bound no deadline of ctx replaces: a longer one does not lengthen it,
// and its end is not that of ctx. Its error names the endpoints, whether etcd has fallen silent
// before the call or after the answer to the call's first request.
func TestWaitOfZeroIsBounded(t *testing.T) {
	t.Parallel()
	for how, away := range aways {
		for when, after := range map[string]time.Duration{"before": 0, "after an answer": 3 * time.Millisecond} {
			t.Run(how+", "+when, func(t *testing.T) {
				t.Parallel()
				bubble(t, 1, func(t *testing.T, on []*desk) {
					d := on[0]
					if after == 0 {
						away(d.client)
					} else {
						d.client.Inject(func(etcdfake.Message) etcdfake.Fault {
							return etcdfake.Fault{RequestDelay: time.Millisecond, ResponseDelay: time.Millisecond}
						})
						time.AfterFunc(after, func() { away(d.client) })
					}
					begun := time.Now()
					_, err := d.semaphore(1).Acquire(within(t, time.Hour), concurrency.Wait(0))
					require.Equal(t, concurrency.TryTimeout, time.Since(begun))
					require.NotErrorIs(t, err, context.DeadlineExceeded, "ctx has not ended")
					var u *concurrency.UnavailableError
					require.ErrorAs(t, err, &u)
					require.Equal(t, after > 0, u.LastAnswer.After(begun))
					require.ErrorContains(t, err, fmt.Sprintf("gave up after %v at endpoints %v; Wait of more than 0", concurrency.TryTimeout, d.client.Endpoints()))
				})
			})
		}
	}
}
