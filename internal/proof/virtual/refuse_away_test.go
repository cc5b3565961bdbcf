package virtual

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// Under Refuse an attempt that fails while etcd is away is in progress for all others, and unknown from when
// etcd is back, or the session has ended: nothing runs before an operator has spoken.
func TestRefuseWhileEtcdIsAway(t *testing.T) {
	for how, away := range aways {
		for _, long := range []time.Duration{time.Second, 8 * time.Second, 2 * ttl} {
			t.Run(fmt.Sprint("etcd ", how, ", ", long), func(t *testing.T) {
				bubble(t, 2, func(t *testing.T, on []*desk) {
					opts := idempotency.Options{OnLost: idempotency.Refuse}
					own, other := on[0].storeOf(opts), on[1].storeOf(opts)
					no, calls := errors.New("no"), 0
					do := func(s *idempotency.Store, wait time.Duration) error {
						_, err := idempotency.Do(t.Context(), s, order("1"), nil, func(context.Context, *idempotency.Attempt) (int, error) {
							calls++
							away(on[0].client)
							return 0, no
						}, idempotency.Wait(wait))
						return err
					}
					back := time.AfterFunc(long, func() { on[0].client.Heal() })
					defer back.Stop()
					err := do(own, 0)
					require.ErrorIs(t, err, no)
					if long > 6*time.Second {
						require.ErrorIs(t, err, idempotency.ErrNotRecorded)
						require.ErrorIs(t, do(own, 0), idempotency.ErrInProgress)
						require.ErrorIs(t, do(other, 0), idempotency.ErrInProgress)
					}
					require.ErrorIs(t, do(other, time.Hour), idempotency.ErrUnknown)
					time.Sleep(2 * ttl)
					require.ErrorIs(t, do(own, time.Hour), idempotency.ErrUnknown)
					require.Equal(t, 1, calls)
				})
			})
		}
	}
}

// A word that comes after MaxExecution is no word, before the claim is removed and after it.
func TestRefuseAfterMaxExecution(t *testing.T) {
	for _, late := range []time.Duration{0, ttl} {
		bubble(t, 1, func(t *testing.T, on []*desk) {
			s := on[0].storeOf(idempotency.Options{OnLost: idempotency.Refuse, SingleTenant: true, MaxExecution: time.Second})
			calls := 0
			for range 2 {
				_, err := idempotency.Do(t.Context(), s, order("1"), nil, func(ctx context.Context, _ *idempotency.Attempt) (int, error) {
					calls++
					<-ctx.Done()
					time.Sleep(late)
					return 0, idempotency.NothingDone(errors.New("no"))
				})
				require.Error(t, err)
			}
			require.Equal(t, 1, calls)
			mw, err := idemhttp.Middleware(s, nil)
			require.NoError(t, err)
			post := askHTTP(t, mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls++
				<-r.Context().Done()
				time.Sleep(late)
				idemhttp.Decide(r.Context(), idempotency.Forget, 200, 429)
				if r.Header.Get("Idempotency-Key") == "2" {
					w.WriteHeader(429)
				}
			})))
			for _, key := range []string{"2", "3"} {
				post(key)
				require.Equal(t, string(idemhttp.CodeUnknown), post(key).code)
			}
			require.Equal(t, 3, calls)
		})
	}
}
