package concurrency_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Several sessions that admit new keys at the same moment: each admits what its count has left, and
// what is refused leaves nothing in etcd (N16).
func TestTrapN16Race(t *testing.T) {
	t.Parallel()
	const most, sessions, each = 30, 4, 40
	f := shared(t)
	ctx := ctxT(t)
	var calls []<-chan answer
	for n := range sessions {
		s, _ := f.Session(idle())
		lim := capped(t, s, "few", concurrency.KeyedLimiterOptions{MaxKeys: most, Total: 1000})
		for i := range each {
			calls = append(calls, ask2(ctx, lim.Key(fmt.Sprint(n, "-", i))))
		}
	}
	var permits []*concurrency.Permit
	for _, call := range calls {
		a := got(t, call, "it is granted or refused")
		if a.err != nil {
			require.ErrorIs(t, a.err, concurrency.ErrTooMany)
			require.ErrorContains(t, a.err, "KeyedLimiterOptions.MaxKeys")
			continue
		}
		permits = append(permits, a.p)
	}
	t.Logf("%d keys of %d", len(permits), most)
	require.GreaterOrEqual(t, len(permits), most)
	require.LessOrEqual(t, len(permits), sessions*most)
	require.Len(t, f.Keys("/total/queue/"), len(permits), "what was refused left nothing")
	for _, p := range permits {
		require.NoError(t, p.Release(ctx))
	}
	f.NoKeys("/queue/")
}
