package virtual

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// passing returns a semaphore that passes permits on.
func (d *desk) passing(limit int, handover time.Duration) *concurrency.Semaphore {
	d.t.Helper()
	sem, err := concurrency.NewSemaphore(d.session, queue, limit, &concurrency.SemaphoreOptions{Handover: handover})
	require.NoError(d.t, err)
	return sem
}

// busy has callers use a semaphore, one permit after the other, for as long as each holds it, until
// ctx ends. It returns how many permits they had.
func (d *desk) busy(ctx context.Context, sem *concurrency.Semaphore, callers int, hold time.Duration, opts ...concurrency.AcquireOption) (had func() int) {
	var all sync.WaitGroup
	counts := make([]int, callers)
	for caller := range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				p, err := sem.Acquire(ctx, opts...)
				if err != nil {
					return
				}
				time.Sleep(hold)
				counts[caller]++
				_ = p.Release(context.Background())
			}
		})
	}
	return func() (n int) {
		all.Wait()
		for _, c := range counts {
			n += c
		}
		return n
	}
}

// W19: permits pass between the callers of a process while another one waits, for one time from the
// grant that no caller starts again. Then the other one is next.
func TestTrapW19HandoverIsBounded(t *testing.T) {
	t.Parallel()
	const handover, hold = 20 * time.Millisecond, time.Millisecond
	bubble(t, 2, func(t *testing.T, on []*desk) {
		ctx, stop := context.WithCancel(t.Context())
		had := on[0].busy(ctx, on[0].passing(1, handover), 4, hold)
		time.Sleep(100 * time.Millisecond)
		for range 10 {
			before := on[0].server.Revision()
			// One request of the process that is busy may be before it.
			select {
			case took := <-on[1].soonest():
				require.LessOrEqual(t, took, 2*(handover+hold))
			case <-time.After(time.Second):
				stop()
				require.FailNow(t, "starved")
			}
			require.Less(t, on[0].server.Revision()-before, int64(10), "passed without a request")
			time.Sleep(50 * time.Millisecond)
		}
		stop()
		require.Greater(t, had(), 400)
		time.Sleep(time.Second)
		require.Zero(t, on[0].held(), "requests that no call needs are withdrawn")
	})
}

// W19, W18: a permit with an ID, a note or another weight, or whose token was asked for, does not pass
// on, and a call for such a one gets none that was passed on. The request of another process, which
// came before the call, is next.
func TestTrapW19OnlyPlainPermitsPass(t *testing.T) {
	t.Parallel()
	weight := concurrency.Weight(2)
	for name, c := range map[string]struct {
		held, wanted []concurrency.AcquireOption
		token        bool
		passes       bool
	}{
		"plain":            {passes: true},
		"token":            {token: true},
		"gives ID":         {held: []concurrency.AcquireOption{concurrency.ID("i")}},
		"gives Note":       {held: []concurrency.AcquireOption{concurrency.Note("n")}},
		"gives Weight":     {held: []concurrency.AcquireOption{weight}},
		"receives ID":      {wanted: []concurrency.AcquireOption{concurrency.ID("i")}},
		"receives Note":    {wanted: []concurrency.AcquireOption{concurrency.Note("n")}},
		"receives Weight":  {wanted: []concurrency.AcquireOption{weight}},
		"receives MaxHold": {wanted: []concurrency.AcquireOption{concurrency.MaxHold(time.Hour)}, passes: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				d, sem := on[0], on[0].passing(2, time.Minute)
				p := d.get(sem, c.held...)
				if name != "gives Weight" {
					rest := on[1].get(on[1].semaphore(2))
					defer func() { require.NoError(t, rest.Release(context.Background())) }()
				}
				if c.token {
					require.Positive(t, p.Token())
				}
				granted := func(sem *concurrency.Semaphore, opts ...concurrency.AcquireOption) <-chan *concurrency.Permit {
					got := make(chan *concurrency.Permit, 1)
					go func() {
						defer close(got)
						if p, err := sem.Acquire(t.Context(), opts...); err == nil {
							got <- p
						}
					}()
					synctest.Wait()
					return got
				}
				foreign := granted(on[1].semaphore(2), weight)
				local := granted(sem, c.wanted...)
				require.NoError(t, p.Release(t.Context()))
				synctest.Wait()
				require.Equal(t, c.passes, len(local) == 1)
				if c.passes {
					require.NoError(t, (<-local).Release(t.Context()))
				}
				d.close(time.Second)
				for p := range local {
					require.NoError(t, p.Release(context.Background()))
				}
				go func() {
					for p := range foreign {
						_ = p.Release(context.Background())
					}
				}()
			})
		})
	}
}

// A call in the local queue ends as any other: with its ctx, with Wait, with Close, and with the errors of
// the request that stands for it. It keeps its place through the loss of the session's lease.
func TestEndsInALocalQueue(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d := on[0]
		foreign := on[1].get(on[1].semaphore(1))
		sem := d.passing(1, 20*time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := sem.Acquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		_, err = sem.Acquire(t.Context(), concurrency.Wait(2*time.Second))
		full := &concurrency.FullError{}
		require.ErrorAs(t, err, &full)
		require.Equal(t, 1, full.Limit)
		require.Equal(t, 1, full.Used)
		time.Sleep(time.Second)
		require.Equal(t, 1, d.held(), "requests that no call needs are withdrawn")
		_, err = sem.TryAcquire(t.Context()) // which would withdraw them itself
		require.ErrorIs(t, err, concurrency.ErrFull)

		other, err := concurrency.NewSemaphore(d.session, queue, 2, &concurrency.SemaphoreOptions{Handover: time.Second})
		require.NoError(t, err)
		for range 2 {
			go func() { _, _ = other.Acquire(context.Background()) }()
			_, err = other.Acquire(within(t, time.Minute))
			require.ErrorIs(t, err, concurrency.ErrLimitMismatch)
		}

		got := make(chan error, 3)
		for range cap(got) {
			go func() {
				p, err := sem.Acquire(context.Background())
				if err == nil {
					err = p.Release(context.Background())
				}
				got <- err
			}()
		}
		synctest.Wait()
		d.server.Expire(d.session.Lease())
		time.Sleep(time.Minute)
		require.NoError(t, foreign.Release(t.Context()))
		for range cap(got) {
			require.NoError(t, <-got)
		}
		foreign = on[1].get(on[1].semaphore(1))
		go func() { _, err := sem.Acquire(context.Background()); got <- err }()
		synctest.Wait()
		d.close(time.Second)
		require.ErrorIs(t, <-got, concurrency.ErrClosed)
		require.NoError(t, foreign.Release(t.Context()))
	})
}

// The longest wait of any process is bounded by its place: while permits pass within processes, a
// process waits for those before it, each for Handover and one hold longer at most. What each process
// had, its longest wait and its fair share are printed.
func TestHandoverIsFair(t *testing.T) {
	t.Parallel()
	const processes, callers, limit, handover, hold = 8, 16, 10, 20 * time.Millisecond, time.Millisecond
	const most = (processes*limit/limit + 1) * (handover + 2*hold)
	lasts := 5 * time.Second
	if testing.Short() {
		lasts = 2 * time.Second
	}
	bubble(t, processes, func(t *testing.T, on []*desk) {
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		longest := make([]time.Duration, processes)
		had := make([]int, processes)
		var all sync.WaitGroup
		for i, d := range on {
			sem := d.passing(limit, handover)
			last := time.Now()
			for range callers {
				all.Go(func() {
					for {
						p, err := sem.Acquire(ctx)
						if err != nil {
							return
						}
						mu.Lock()
						longest[i], last = max(longest[i], time.Since(last)), time.Now()
						had[i]++
						mu.Unlock()
						time.Sleep(hold)
						_ = p.Release(context.Background())
					}
				})
			}
		}
		time.Sleep(lasts)
		stop()
		all.Wait()
		fair, sum := int(lasts/hold)*limit/processes, 0
		for i := range on {
			t.Logf("process %d: %d permits, %.0f %% of its fair share; longest time without one %v", i, had[i], 100*float64(had[i])/float64(fair), longest[i])
			require.LessOrEqual(t, longest[i], most)
			require.InEpsilon(t, fair, had[i], 0.2)
			sum += had[i]
		}
		t.Logf("%.0f %% of the limit was used", 100*float64(sum)/float64(fair*processes))
		require.Greater(t, sum, fair*processes*85/100)
	})
}
