package virtual

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/observe"
)

// A374: Close gives a function of the program that is just running two seconds after its ctx has ended, also if the client is
// closed, or ctx ended late. It blames none if none is running: each case is repeated, since that was by chance.
func TestCloseWaitsForFunctionsOfTheProgram(t *testing.T) {
	t.Parallel()
	const bound = 5 * time.Second // of ctx
	for name, end := range map[string]func(t *testing.T, d *desk, ctx context.Context) error{
		"the client is closed": func(_ *testing.T, d *desk, ctx context.Context) error {
			_ = d.client.Close()
			return d.session.Close(ctx)
		},
		"etcd is away": func(_ *testing.T, d *desk, ctx context.Context) error {
			d.client.Refuse()
			return d.session.Close(ctx)
		},
		"etcd answers": func(_ *testing.T, d *desk, ctx context.Context) error { return d.session.Close(ctx) },
	} {
		for lasting, blamed := range map[time.Duration]bool{0: false, bound + time.Second: false, bound + 3*time.Second: true} {
			t.Run(name+", "+lasting.String(), func(t *testing.T) {
				for range 10 {
					bubble(t, 1, func(t *testing.T, on []*desk) {
						d := on[0]
						var begun, returned atomic.Bool
						d.open(concurrency.SessionOptions{Hooks: []observe.Hooks{{Event: func(_ context.Context, e observe.Event) {
							if _, closed := e.(observe.SessionClosed); closed && lasting > 0 {
								begun.Store(true)
								time.Sleep(lasting)
								returned.Store(true)
							}
						}}}})
						time.Sleep(time.Second)
						ctx, cancel := context.WithTimeout(t.Context(), bound)
						defer cancel()
						called := time.Now()
						err := end(t, d, ctx)
						took := time.Since(called)
						require.Equal(t, lasting > 0, begun.Load())
						if blamed {
							require.ErrorContains(t, err, "has not returned")
							require.Equal(t, bound+2*time.Second, took)
							time.Sleep(2 * time.Second)
							return
						}
						require.Equal(t, lasting > 0, returned.Load(), "after %v", took)
						if err != nil {
							require.NotContains(t, err.Error(), "has not returned")
						}
					})
				}
			})
		}
	}
}
