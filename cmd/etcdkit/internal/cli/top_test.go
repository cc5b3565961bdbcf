package cli

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// The queue with the oldest wait is first; without a terminal the table is printed once.
func TestTop(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.crowd("charge")
	ctx := testkit.Context(t)
	s := f.session("web-7")
	m, err := concurrency.NewMutex(s, "report")
	require.NoError(t, err)
	f.permit(m.Lock(ctx))
	sm, err := concurrency.NewSemaphore(s, "stopped", 3, nil)
	require.NoError(t, err)
	require.NoError(t, f.permit(sm.Acquire(ctx)).Release(ctx))
	require.NoError(t, sm.SetLimit(ctx, 0))
	l, err := concurrency.NewKeyedLimiter(s, "api", 5, nil) // without a total
	require.NoError(t, err)
	f.permit(l.Key("tenant-7").Acquire(ctx))
	for _, owner := range []string{"web-7", "web-8"} { // the one that waits is a candidate, which is last
		e, err := concurrency.NewElection(f.session(owner), "shard")
		require.NoError(t, err)
		if owner == "web-7" {
			f.permit(e.Campaign(ctx))
			continue
		}
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { _, _ = e.Campaign(waiting) }()
		require.Eventually(t, func() bool { st, err := e.Status(ctx); return err == nil && len(st.Waiters) == 1 }, testkit.Soon, 5*time.Millisecond)
	}
	f.shell("top -N test")
	f.shell("top -N test --rows 1 -o json")
	f.shell("top -N test --every 10ms")
	f.golden("top")
}

// With --every, the states are a stream without a terminal too, one line each.
func TestTopStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.crowd("charge")
	f.stream("top -N test --every 1s -o json", func(interrupt func()) []act {
		const line = "{\"schema\":\"etcdkit.top/v1\""
		return []act{{line, func() {}}, {"}\n" + line, interrupt}}
	})
	f.golden("top-every")
}

// A stream outlives an outage of etcd, of which standard error tells.
func TestTopStreamDuringAnOutage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.crowd("charge")
	c := f.etcd.NewClient(t, nil)
	sess := testkit.SessionOn(t, c.Client, f.prefix, nil)
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	defer cancel(nil)
	const line = "{\"schema\":\"etcdkit.top/v1\""
	errs := &stage{acts: []act{{"etcd does not answer", func() { c.Heal() }}}}
	out := &stage{acts: []act{{line, c.Cut}, {"}\n" + line, func() { cancel(interrupted{syscall.SIGINT}) }}}}
	a := &app{std: Streams{Out: out, Err: errs}, output: "json", etcd: connection{timeout: time.Second}}
	require.ErrorIs(t, a.redraw(ctx, sess, 100*time.Millisecond, 5, false, true), context.Canceled)
}

// A terminal shows the first rows, and no line is broken.
func TestTopFitsTheTerminal(t *testing.T) {
	t.Parallel()
	const table = "title\nhead\none öne\ntwo\nthree\n"
	require.Equal(t, table, string(fit([]byte(table), 0, 0)), "of a size that is not known")
	require.Equal(t, table, string(fit([]byte(table), 7, 6)))
	require.Equal(t, "title\nhead\none ö\nand 2\n", string(fit([]byte(table), 5, 5)))
	require.Equal(t, 4, strings.Count(string(fit([]byte(table), 80, 5)), "\n"), "and the line of the cursor")
	require.Contains(t, string(fit([]byte(table), 80, 5)), "one öne\nand 2 lines more")
}
