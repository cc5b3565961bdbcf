package schedlock_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

func (f fixture) elector(in instance) *schedlock.GocronElector {
	f.T.Helper()
	el, err := concurrency.NewElection(in.sess, "cron")
	require.NoError(f.T, err)
	e, err := schedlock.NewGocronElector(el)
	require.NoError(f.T, err)
	f.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		_ = e.Close(ctx)
	})
	return e
}

func leads(t testing.TB, e *schedlock.GocronElector) {
	t.Helper()
	require.Eventually(t, func() bool { return e.IsLeader(ctxT(t)) == nil }, soon, 5*time.Millisecond)
}

// J3: the leader is cut off without a word, or black-holed. It says that it does not lead
// before the next one says that it does.
func TestElectorOfACutOffLeader(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*embedtest.Client){"cut": (*embedtest.Client).Cut, "black hole": (*embedtest.Client).BlackHole} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			a, b := f.instance(quick(), nil), f.instance(nil, nil)
			old := f.elector(a)
			leads(t, old)
			next := f.elector(b)
			require.ErrorIs(t, next.IsLeader(ctx), schedlock.ErrNotLeading)
			cut(a.client)
			for late := time.Now().Add(soon); ; runtime.Gosched() {
				if next.IsLeader(ctx) == nil {
					require.ErrorIs(t, old.IsLeader(ctx), schedlock.ErrNotLeading, "two leaders")
					break
				}
				require.True(t, time.Now().Before(late), "there is no leader")
				time.Sleep(100 * time.Microsecond)
			}
			a.client.Heal()
			require.NoError(t, next.Close(ctx))
			require.ErrorIs(t, next.IsLeader(ctx), schedlock.ErrNotLeading)
			leads(t, old) // it campaigns again
		})
	}
}

// J13: an elector that was closed, or whose session was, leads no more and leaves nothing.
func TestElectorIsClosed(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	_, err := schedlock.NewGocronElector(nil)
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	e := f.elector(a)
	leads(t, e)
	require.NoError(t, e.Close(ctx))
	require.NoError(t, e.Close(ctx))
	require.ErrorIs(t, e.IsLeader(ctx), context.Canceled)
	f.NoKeys("/queue/")
	e = f.elector(b)
	leads(t, e)
	require.NoError(t, b.sess.Close(ctx))
	require.Eventually(t, func() bool { return e.IsLeader(ctx) != nil }, soon, 5*time.Millisecond)
	f.NoKeys("/queue/")
}
