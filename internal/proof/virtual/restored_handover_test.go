package virtual

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// TestRestoreUnderHandover: after a restored backup a process in which permits pass between calls has no pause: the answer to
// the release of a permit shows that etcd's history was taken back (A523 in internal/proof/tested-failures.md).
func TestRestoreUnderHandover(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		handover, hold time.Duration
		limit          int
	}{{20 * time.Millisecond, 5 * time.Millisecond, 1}, {20 * time.Millisecond, 50 * time.Millisecond, 2}, {time.Second, 50 * time.Millisecond, 1}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				d.passes(1000)
				restore := d.server.Backup()
				d.passes(3000)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				sem := d.passing(c.limit, c.handover)
				var load sync.WaitGroup
				var mu sync.Mutex
				var longest time.Duration
				last := time.Now()
				for range 4 {
					load.Go(func() {
						for ctx.Err() == nil {
							_ = sem.Do(ctx, func(ctx context.Context, _ *concurrency.Permit) error {
								mu.Lock()
								longest, last = max(longest, time.Since(last)), time.Now()
								mu.Unlock()
								select {
								case <-ctx.Done():
								case <-time.After(c.hold):
								}
								return nil
							})
						}
					})
				}
				time.Sleep(2 * time.Second)
				restore()
				time.Sleep(4 * time.Second)
				mu.Lock()
				longest = max(longest, time.Since(last))
				mu.Unlock()
				stop()
				load.Wait()
				require.Less(t, longest, c.handover+c.hold+200*time.Millisecond)
			})
		})
	}
}
