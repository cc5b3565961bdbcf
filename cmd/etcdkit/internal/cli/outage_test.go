package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// Without space nothing was tested, so no promise is broken. What is next is said, and doctor examines the
// namespace all the same.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, &embedtest.Options{QuotaBytes: 2 << 20})
	ctx := testkit.Context(t)
	sm, err := concurrency.NewSemaphore(testkit.SessionOn(t, etcd.Client(), "/etcdkit", nil), "charge", 2, nil)
	require.NoError(t, err)
	_, err = sm.Acquire(ctx)
	require.NoError(t, err)
	execs := func(line string) (code int, out string) {
		var both bytes.Buffer
		code = cli.Execute(ctx, append(strings.Fields(line), "-N", "test", "--endpoints", strings.Join(etcd.Endpoints(), ",")), verb.Streams{In: strings.NewReader(""), Out: &both, Err: &both})
		return code, both.String()
	}
	code, out := execs("hold production --id deploy-42 --for 5m")
	require.Zero(t, code, out)
	store, err := idempotency.NewStore(testkit.SessionOn(t, etcd.Client(), "/etcdkit", nil), "orders", nil)
	require.NoError(t, err)
	_, err = idempotency.Do(ctx, store, clitest.Order("1"), "payload", func(context.Context, *idempotency.Attempt) (int, error) { return 7, nil })
	require.NoError(t, err)
	r, _, err := store.Get(ctx, store.Ref(clitest.Order("1")))
	require.NoError(t, err)
	for n := 0; err == nil; n++ {
		_, err = etcd.Client().Put(ctx, "junk/"+strconv.Itoa(n), strings.Repeat("x", 100_000))
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	for line, want := range map[string]string{
		"conformance --yes --only Limit": "is out of space",
		"limit charge 3":                 "is out of space",
		"doctor":                         "2 queues; ",
		"show charge":                    "used 1",
	} {
		code, out := execs(line)
		require.Equal(t, line == "show charge", code == exit.OK, out)
		require.Contains(t, out, want, line)
		require.NotContains(t, out, "broken", line)
	}
	// What only frees something works.
	for _, line := range []string{"release production --id deploy-42", fmt.Sprintf("requests delete orders %s --revision %d --yes", r.Ref, r.Revision)} {
		code, out := execs(line)
		require.Zero(t, code, out)
	}
	_, out = execs("show mutex/production")
	require.Contains(t, out, "used 0")
}

// Without a majority, a verb that reads says that there is no leader.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, &embedtest.Options{Members: 3})
	require.NoError(t, etcd.Stop(1))
	require.NoError(t, etcd.Stop(2))
	var out bytes.Buffer
	code := cli.Execute(testkit.Context(t), []string{"ls", "-N", "test", "--endpoints", etcd.Endpoints()[0], "--command-timeout", "2s"}, verb.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	require.Equal(t, exit.Unreachable, code)
	require.Contains(t, out.String(), "no leader")
}
