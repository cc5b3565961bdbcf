package concurrency_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

// A call that etcd stops answering says in which queue it waited: that of its key or of the total.
func TestUnavailableSaysWhichQueue(t *testing.T) {
	if testing.Short() {
		t.Skip("etcd is silent for seconds")
	}
	t.Parallel()
	for name, c := range map[string]struct {
		limit, total int
		level        concurrency.Level
		text         string
	}{
		"its key":         {1, 2, concurrency.LevelKey, "the queue of the key then had "},
		"the total":       {2, 1, concurrency.LevelTotal, "the queue of the total then had "},
		"without a total": {1, 0, concurrency.LevelKey, "the queue of the key then had "},
		"a semaphore":     {1, -1, "", "the queue then had "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			waits := make(chan struct{}, 100)
			o := idle()
			o.Hooks = testkit.Trace{Waiting: func(observe.Waiting) { waits <- struct{}{} }}.Hooks()
			s, client := f.Session(o)
			sm := sem(t, s, "x", 1)
			if c.total >= 0 {
				sm = totaled(t, s, "llm", c.limit, c.total).Key("a")
			}
			p := acquire(t, ctx, sm)
			w := ask(t, ctx, sm, concurrency.Wait(4*time.Second))
			got(t, waits, "the session has seen the queue")
			client.Cut()
			err := got(t, w, "Wait").err
			client.Heal()
			u, ok := errors.AsType[*concurrency.UnavailableError](err)
			require.True(t, ok, "%v", err)
			require.NotNil(t, u.Seen)
			require.Equal(t, c.level, u.Seen.Level)
			require.ErrorContains(t, err, c.text)
			require.NoError(t, p.Release(ctx))
		})
	}
}
