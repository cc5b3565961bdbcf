package virtual

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// holdersOf are the permits that their callers hold at a moment, whatever keys in etcd they have.
type holdersOf struct {
	mu     sync.Mutex
	valid  map[*concurrency.Permit]string
	grants int
	wrong  []string
}

// grant records a permit, and that with it no more are held than the limit.
func (h *holdersOf) grant(p *concurrency.Permit, who string, limit int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grants++
	h.valid[p] = who
	held := []string{}
	for p, who := range h.valid {
		if p.Err() == nil {
			held = append(held, who)
		}
	}
	if len(held) > limit {
		h.wrong = append(h.wrong, fmt.Sprintf("%v under a limit of %d", held, limit))
	}
}

func (h *holdersOf) release(p *concurrency.Permit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.valid, p)
}

// Processes keep permits and pass them on, beside one that does neither, while messages are lost,
// late and doubled, and processes are stopped and cut off: no more permits are held than the limit, by
// callers and not only in etcd, and with a limit of 1 no key has two callers. At the end no request is
// left, and each process gets a permit.
func TestKeepAndHandoverUnderFaults(t *testing.T) {
	t.Parallel()
	seeds := []uint64{2, 4, 5, 9, 11, 14, 15} // Keep, Handover and both, with each limit: of the others the longest, and those with neither, are left out
	if testing.Short() {
		seeds = []uint64{11}
	}
	for _, seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 16))
		limit := 1 + r.IntN(3)
		opts := concurrency.SemaphoreOptions{Keep: time.Duration(r.IntN(3)) * time.Second, Handover: time.Duration(r.IntN(3)) * 20 * time.Millisecond}
		t.Run(fmt.Sprintf("seed %d limit %d Keep %v Handover %v", seed, limit, opts.Keep, opts.Handover), func(t *testing.T) {
			t.Parallel()
			bubble(t, 3, func(t *testing.T, on []*desk) {
				h := &holdersOf{valid: map[*concurrency.Permit]string{}}
				ctx, stop := context.WithCancel(context.Background())
				var all sync.WaitGroup
				sems := []*concurrency.Semaphore{}
				for i, d := range on {
					of := opts
					if i == 2 {
						of = concurrency.SemaphoreOptions{}
					}
					sem, err := concurrency.NewSemaphore(d.session, queue, limit, &of)
					require.NoError(t, err)
					sems = append(sems, sem)
					for caller := range 3 {
						own := rand.New(rand.NewPCG(seed, uint64(10*i+caller)))
						all.Go(func() { call(ctx, sem, h, fmt.Sprintf("%d/%d", i, caller), limit, own) })
					}
				}
				harmless := time.Now()
				for range 12 {
					time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
					lasts := harm(r, on[r.IntN(len(on))])
					if until := time.Now().Add(lasts); until.After(harmless) {
						harmless = until
					}
				}
				for _, d := range on {
					d.client.Inject(nil)
				}
				time.Sleep(time.Until(harmless) + 2*time.Second)
				stop()
				all.Wait()
				time.Sleep(time.Minute)
				require.Empty(t, h.wrong)
				for _, sem := range sems {
					p, err := sem.Acquire(within(t, time.Minute))
					require.NoError(t, err)
					require.NoError(t, p.Release(t.Context()))
				}
				time.Sleep(20 * time.Second)
				for _, key := range on[0].server.Keys(prefix) {
					require.NotContains(t, key, "/queue/", strings.TrimPrefix(key, prefix))
				}
				t.Logf("%d grants", h.grants)
			})
		})
	}
}

// call is one caller that acquires, holds and releases again and again.
func call(ctx context.Context, sem *concurrency.Semaphore, h *holdersOf, who string, limit int, r *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
		var opts []concurrency.AcquireOption
		get := sem.Acquire
		switch r.IntN(8) {
		case 0:
			get = sem.TryAcquire
		case 1:
			opts = append(opts, concurrency.MaxHold(time.Duration(1+r.IntN(40))*time.Millisecond))
		case 2:
			opts = append(opts, concurrency.Wait(time.Duration(1+r.IntN(300))*time.Millisecond))
		case 3:
			opts = append(opts, concurrency.Note("n"))
		}
		bound, cancel := context.WithTimeout(ctx, time.Duration(1+r.IntN(2000))*time.Millisecond)
		p, err := get(bound, opts...)
		cancel()
		if err != nil {
			continue
		}
		h.grant(p, who, limit)
		if r.IntN(4) == 0 {
			p.Token()
		}
		select {
		case <-p.Context().Done():
		case <-time.After(time.Duration(r.IntN(30)) * time.Millisecond):
		}
		h.release(p)
		patient, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(3000))*time.Millisecond)
		_ = p.Release(patient)
		cancel()
	}
}

// longestHarm is for how long a process is harmed at most.
const longestHarm = 24 * time.Second

// harm does something to a process. It returns for how long.
func harm(r *rand.Rand, d *desk) time.Duration {
	lasts := time.Duration(r.IntN(int(longestHarm/3/time.Millisecond))) * time.Millisecond
	switch r.IntN(4) {
	case 0:
		d.client.Stall()
		time.AfterFunc(3*lasts, d.client.Heal)
		return 3 * lasts
	case 1:
		d.client.Refuse()
		time.AfterFunc(3*lasts, d.client.Heal)
		return 3 * lasts
	case 2:
		d.client.Break()
		return 0
	default:
		fate := []etcdfake.Fault{
			{ResponseDelay: lasts}, {RequestDelay: lasts}, {Err: etcdfake.ErrUnavailable}, {Err: etcdfake.ErrUnavailable, DropRequest: true},
			{Err: etcdfake.ErrUnavailable, RequestDelay: lasts}, {Duplicate: lasts}, {DropResponse: true},
		}[r.IntN(7)]
		method, n := []string{"Txn", "Txn", "Range", "Watch", "LeaseKeepAlive"}[r.IntN(5)], 1+r.IntN(20)
		var mu sync.Mutex
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			mu.Lock()
			defer mu.Unlock()
			if m.Method != method || n == 0 || m.Method == "Watch" && !m.Response {
				return etcdfake.Fault{}
			}
			n--
			return fate
		})
		return lasts // of a message that has met it
	}
}
