package lease

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A143: after a refused login, one takes long, as where a whole fleet logs in. It is not given up for the refusal
// that another lane gets meanwhile: that is known without a request.
func TestSlowLogin(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]time.Duration{"2 s": 2 * time.Second, "6.5 s": 6500 * time.Millisecond} {
		bubble(t, name, func(t *testing.T) {
			a := newAPI()
			l := grant(t, a)
			defer l.Close(errTest)
			s := <-a.streams
			s.answer(0, 15)
			synctest.Wait()
			var under atomic.Bool
			var logins, givenUp atomic.Int64
			a.open = func(ctx context.Context) error {
				if !under.CompareAndSwap(false, true) {
					return rpctypes.ErrGRPCAuthFailed
				}
				defer under.Store(false)
				logins.Add(1)
				select {
				case <-time.After(takes):
					return nil
				case <-ctx.Done():
					givenUp.Add(1)
					return ctx.Err()
				}
			}
			r := <-s.sent
			s.answers <- answer{id: r.id, err: rpctypes.ErrGRPCAuthFailed}
			deadline := l.Deadline()
			(<-a.streams).answer(0, 15)
			synctest.Wait()
			require.True(t, l.Deadline().After(deadline))
			require.EqualValues(t, 1, logins.Load())
			require.Zero(t, givenUp.Load())
		})
	}
}
