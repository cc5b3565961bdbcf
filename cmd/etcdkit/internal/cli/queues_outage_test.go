package cli_test

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queues"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A verb that prints changes says when etcd is away, and when it is back.
func TestFollowingThroughAnOutage(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	defer cancel(nil)
	sm, err := concurrency.NewSemaphore(testkit.SessionOn(t, etcd.Client(), "/etcdkit", nil), "charge", 2, nil)
	require.NoError(t, err)
	_, err = sm.Acquire(ctx)
	require.NoError(t, err)
	out := &clitest.Stage{Acts: []clitest.Act{clitest.On("semaphore/charge", func() { assert.NoError(t, etcd.Crash(0)) })}}
	errs := &clitest.Stage{Acts: []clitest.Act{
		clitest.On("etcd does not answer", func() { assert.NoError(t, etcd.Restart(ctx, 0)) }),
		clitest.On("etcd answers again", func() { cancel(exit.Interrupted{Signal: syscall.SIGINT}) }),
	}}
	args := []string{"show", "-w", "-N", "test", "charge", "--endpoints", strings.Join(etcd.Endpoints(), ","), "--command-timeout", "300ms"}
	require.Equal(t, 130, cli.Execute(ctx, args, verb.Streams{In: strings.NewReader(""), Out: out, Err: errs}), errs.String())
	require.Contains(t, errs.String(), "refused")
}

// The table on a screen survives an outage.
func TestTopThroughAnOutage(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Crowd("charge")
	c := f.Etcd.NewClient(t, nil)
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	sess := testkit.SessionOn(t, c.Client, f.Prefix, nil)
	const table = "semaphore/charge"
	out := &clitest.Stage{Acts: []clitest.Act{clitest.On(table, c.Cut), clitest.On("does not answer", c.Heal), clitest.On(table, cancel)}}
	a := &verb.Call{Std: verb.Streams{Out: out}, Output: "table", Etcd: verb.Connection{Timeout: 300 * time.Millisecond}}
	require.ErrorIs(t, queues.Redraw(ctx, a, sess, time.Millisecond, 20, true, true), context.Canceled)
	require.Empty(t, out.Acts)
}

// The listing of all kinds of queue takes longer than --command-timeout, which bounds each answer.
func TestLsOnASlowEtcd(t *testing.T) {
	t.Parallel()
	onSlowEtcd(t, "Range", 800*time.Millisecond, func(t *testing.T, sess *concurrency.Session, slow func()) {
		sm, err := concurrency.NewSemaphore(sess, "charge", 2, nil)
		require.NoError(t, err)
		m, err := concurrency.NewMutex(sess, "report")
		require.NoError(t, err)
		el, err := concurrency.NewElection(sess, "shard")
		require.NoError(t, err)
		for _, acquire := range []func(context.Context, ...concurrency.AcquireOption) (*concurrency.Permit, error){sm.Acquire, m.Lock, el.Campaign} {
			_, err := acquire(t.Context())
			require.NoError(t, err)
		}
		slow()
		var out bytes.Buffer
		a := &verb.Call{Std: verb.Streams{Out: &out}, Output: "table", Etcd: verb.Connection{Timeout: 3 * time.Second}}
		began := time.Now()
		require.NoError(t, queues.List(t.Context(), a, sess))
		require.Greater(t, time.Since(began), a.Etcd.Timeout, "or this shows nothing")
		require.Contains(t, out.String(), "election/shard")
	})
}
