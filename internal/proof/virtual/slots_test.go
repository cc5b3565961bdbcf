package virtual

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// crowded is a session with as many waiting requests as it may have, each with the
// function that ends its ctx. They wait in mutexes, whose calls read no limit first.
func (d *desk) crowded(requests int) (giveUp []context.CancelFunc) {
	d.traced(concurrency.SessionOptions{MaxPermits: requests})
	for range requests {
		ctx, cancel := context.WithCancel(within(d.t, time.Minute))
		go func() { _, _ = mutexOf(d).Lock(ctx) }()
		synctest.Wait()
		giveUp = append(giveUp, cancel)
	}
	return giveUp
}

// asking locks in a goroutine, and reports the error and the time that it took.
func (d *desk) asking(ctx context.Context, opts ...concurrency.AcquireOption) <-chan result {
	ch := make(chan result, 1)
	begun := time.Now()
	go func() {
		_, err := mutexOf(d).Lock(ctx, opts...)
		ch <- result{err, time.Since(begun)}
	}()
	synctest.Wait()
	return ch
}

type result struct {
	err  error
	took time.Duration
}

// A37: requests that were given up take slots until etcd has confirmed that they are
// gone. Calls that meet MaxPermits because of those wait for it, each for one; another one
// fails at once, as with live requests alone.
func TestSlotsThatAreAboutToBeFreed(t *testing.T) {
	t.Parallel()
	const most, trip = 4, 300 * time.Millisecond
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d := on[1]
		held, err := mutexOf(on[0]).Lock(t.Context())
		require.NoError(t, err)
		giveUp := d.crowded(most)
		at := func(ch <-chan result, took time.Duration) {
			t.Helper()
			r := <-ch
			require.ErrorIs(t, r.err, concurrency.ErrTooMany)
			require.Equal(t, took, r.took)
		}
		at(d.asking(t.Context()), 0)

		d.slow("Txn", 2, etcdfake.Fault{ResponseDelay: trip})
		giveUp[1]()
		giveUp[3]()
		synctest.Wait()
		first, second := d.asking(within(t, time.Minute)), d.asking(within(t, time.Minute))
		at(d.asking(t.Context()), 0)
		time.Sleep(trip - time.Millisecond)
		synctest.Wait()
		require.Len(t, d.server.Keys(root+"mutex/"+queue+"/queue/"), most-1, "the holder and the calls that have not given up")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Len(t, d.server.Keys(root+"mutex/"+queue+"/queue/"), most+1, "both have a slot")
		require.Empty(t, first)
		require.Empty(t, second)
		at(d.asking(t.Context()), 0)
		giveUp[0]()
		giveUp[2]()
		require.NoError(t, held.Release(t.Context()))
		select { // both were given a slot at one moment: either is the first in the queue
		case r := <-first:
			require.NoError(t, r.err)
		case r := <-second:
			require.NoError(t, r.err)
		}
	})
}

// A37: the wait for a slot ends with ctx, with Wait, with Close and with the lease, and is
// bounded. A slot whose call has given up is the next one's.
func TestWaitForASlotEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ctx  time.Duration
		opts []concurrency.AcquireOption
		do   func(d *desk)
		want error
		took time.Duration
	}{
		"at its bound": {want: concurrency.ErrTooMany, took: 5 * time.Second},
		"with ctx":     {ctx: 2 * time.Second, want: context.DeadlineExceeded, took: 2 * time.Second},
		"with Wait":    {opts: []concurrency.AcquireOption{concurrency.Wait(2 * time.Second)}, want: concurrency.ErrUnavailable, took: 2 * time.Second},
		"with Close":   {do: func(d *desk) { d.close(0) }, want: concurrency.ErrClosed, took: time.Second},
		"with the lease": {
			do:  func(d *desk) { d.client.Heal(); d.server.Expire(d.session.Lease()) }, // and it continues on the next one
			ctx: 10 * time.Second, want: context.DeadlineExceeded, took: 10 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, on []*desk) {
				_, err := mutexOf(on[0]).Lock(t.Context())
				require.NoError(t, err)
				d := on[1]
				giveUp := d.crowded(1)
				d.client.Stall()
				defer time.Sleep(time.Minute) // a Close that has begun ends; a bubble cannot wait for its mutex
				defer d.client.Heal()
				giveUp[0]()
				synctest.Wait()
				ctx := context.Background()
				if tt.ctx > 0 {
					ctx = within(t, tt.ctx)
				}
				if tt.do != nil {
					time.AfterFunc(time.Second, func() { tt.do(d) })
				}
				r := <-d.asking(ctx, tt.opts...)
				require.ErrorIs(t, r.err, tt.want)
				require.Equal(t, tt.took, r.took)
				if tt.want != concurrency.ErrTooMany {
					require.NotErrorIs(t, r.err, concurrency.ErrTooMany)
				}
			})
		})
	}
}
