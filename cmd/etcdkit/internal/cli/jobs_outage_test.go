package cli_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/jobs"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A slow etcd is no outage: verbs that read many names have --command-timeout for each answer.
func TestManyNamesOnASlowEtcd(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	l, err := schedlock.New(f.Session("web-7"), nil)
	require.NoError(t, err)
	const many = 80
	for n := range many {
		_, err := l.Do(ctx, strconv.Itoa(n), clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
		require.NoError(t, err)
	}
	c := f.Etcd.NewClient(t, nil)
	sess := testkit.SessionOn(t, c.Client, f.Prefix, nil)
	c.Inject(embedtest.Fault{Method: "Txn", Times: -1, Before: func() { time.Sleep(400 * time.Millisecond) }})
	var out bytes.Buffer
	a := &verb.Call{Std: verb.Streams{Out: &out}, Output: "table", Etcd: verb.Connection{Timeout: 3 * time.Second}}
	began := time.Now()
	require.NoError(t, jobs.List(ctx, a, sess))
	require.Greater(t, time.Since(began), a.Etcd.Timeout, "or this shows nothing")
	require.Equal(t, many+1, strings.Count(out.String(), "\n"))
}
