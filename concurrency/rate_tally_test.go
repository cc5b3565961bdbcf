package concurrency_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/observe"
)

// Each call of Allow and Wait is in one report by the end of its session, with how it has ended.
func TestCallsOfARateAreReported(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	var mu sync.Mutex
	got, want := map[string]int{}, map[string]int{}
	opts := idle()
	opts.Hooks = []observe.Hooks{{Event: func(_ context.Context, e observe.Event) {
		if c, ok := e.(observe.RateCalls); ok {
			mu.Lock()
			defer mu.Unlock()
			got[c.Namespace+"/"+c.Name+" "+string(c.Result)+" "+string(c.Reason)] += c.Count
		}
	}}}
	s, _ := f.Session(opts)
	l := rateLimiter(t, s, "mail", 1000, 100)
	for range 50 {
		require.NoError(t, l.Wait(ctx))
		want["test/mail granted "]++
	}
	for want["test/mail refused exceeded"] < 20 {
		if err := l.Allow(); err != nil {
			require.ErrorIs(t, err, concurrency.ErrRateExceeded)
			want["test/mail refused exceeded"]++
		} else {
			want["test/mail granted "]++
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, l.Wait(ended), context.Canceled)
	want["test/mail gave_up canceled"]++
	require.NoError(t, s.Close(ctx))
	require.Equal(t, want, got)
}
