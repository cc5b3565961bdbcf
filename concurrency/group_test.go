package concurrency_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// Many callers of one session, each with a name of its own, share Txns, and each gets what it would
// get alone, whatever becomes of the responses. The exact rules are tested in virtual time.
func TestManyNamesAtOnce(t *testing.T) {
	t.Parallel()
	const callers = 64
	for name, do := range map[string]embedtest.Action{"all is well": embedtest.Pass, "responses lost": embedtest.DropResponse, "sent twice": embedtest.Duplicate} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle())
			other, _ := f.Session(idle())
			each := func(fn func(i int) error) {
				t.Helper()
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() { assertNoError(t, fn(i)) })
				}
				all.Wait()
				require.False(t, t.Failed())
			}
			of := func(s *concurrency.Session, i int) *concurrency.Semaphore { return sem(t, s, fmt.Sprint("s", i), 1) }
			permits := make([]*concurrency.Permit, callers)
			get := func(i int) (err error) { permits[i], err = of(s, i).Acquire(ctx); return err }
			release := func(i int) error { return permits[i].Release(ctx) }
			each(get)
			each(release)
			if do != embedtest.Pass {
				c.Inject(embedtest.Fault{Method: "Txn", Do: do, Times: 5})
			}
			c.ResetRequests()
			for shared := false; !shared; {
				each(get)
				tokens := map[int64]bool{}
				for i, p := range permits {
					shared = shared || tokens[p.Token()]
					tokens[p.Token()] = true
					_, err := of(other, i).TryAcquire(ctx)
					require.ErrorIs(t, err, concurrency.ErrFull)
				}
				each(release)
			}
			each(func(i int) error {
				return of(other, i).Do(ctx, func(context.Context, *concurrency.Permit) error { return nil })
			})
			f.NoKeys("queue/")
		})
	}
}
