package cli_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queues"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// The queue with the oldest wait is first; without a terminal the table is printed once.
func TestTop(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Crowd("charge")
	ctx := testkit.Context(t)
	s := f.Session("web-7")
	m, err := concurrency.NewMutex(s, "report")
	require.NoError(t, err)
	f.Permit(m.Lock(ctx))
	sm, err := concurrency.NewSemaphore(s, "stopped", 3, nil)
	require.NoError(t, err)
	require.NoError(t, f.Permit(sm.Acquire(ctx)).Release(ctx))
	require.NoError(t, sm.SetLimit(ctx, 0))
	l, err := concurrency.NewKeyedLimiter(s, "api", 5, nil) // without a total
	require.NoError(t, err)
	f.Permit(l.Key("tenant-7").Acquire(ctx))
	for _, owner := range []string{"web-7", "web-8"} { // the one that waits is a candidate, which is last
		e, err := concurrency.NewElection(f.Session(owner), "shard")
		require.NoError(t, err)
		if owner == "web-7" {
			f.Permit(e.Campaign(ctx))
			continue
		}
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { _, _ = e.Campaign(waiting) }()
		require.Eventually(t, func() bool { st, err := e.Status(ctx); return err == nil && len(st.Waiters) == 1 }, testkit.Soon, 5*time.Millisecond)
	}
	f.Shell("top -N test")
	f.Shell("top -N test --rows 1 -o json")
	f.Shell("top -N test --every 10ms")
	f.Golden("top")
}

// With --every, the states are a stream without a terminal too, one line each.
func TestTopStream(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Crowd("charge")
	f.Stream("top -N test --every 1s -o json", func(interrupt func()) []clitest.Act {
		const line = "{\"schema\":\"etcdkit.top/v1\""
		return []clitest.Act{clitest.On(line, func() {}), clitest.On("}\n"+line, interrupt)}
	})
	f.Golden("top-every")
}

// A stream outlives an outage of etcd, which standard error reports.
func TestTopStreamDuringAnOutage(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Crowd("charge")
	c := f.Etcd.NewClient(t, nil)
	sess := testkit.SessionOn(t, c.Client, f.Prefix, nil)
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	defer cancel(nil)
	const line = "{\"schema\":\"etcdkit.top/v1\""
	errs := &clitest.Stage{Acts: []clitest.Act{clitest.On("etcd does not answer", func() { c.Heal() })}}
	out := &clitest.Stage{Acts: []clitest.Act{clitest.On(line, c.Cut), clitest.On("}\n"+line, func() { cancel(exit.Interrupted{Signal: syscall.SIGINT}) })}}
	a := &verb.Call{Std: verb.Streams{Out: out, Err: errs}, Output: "json", Etcd: verb.Connection{Timeout: time.Second}}
	require.ErrorIs(t, queues.Redraw(ctx, a, sess, 100*time.Millisecond, 5, false, true), context.Canceled)
}
