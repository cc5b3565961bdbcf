package trial_test

import (
	"context"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

func TestBench(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	if f.Etcd.External() {
		t.Skip("its text is that of one member")
	}
	f.Also = []clitest.Pattern{
		{Of: regexp.MustCompile(`(?m)^([a-z ]+  \d)  \d+  \d+  .*ms$`), As: "$1  5000  1000  0.80ms  1.10ms  2.40ms  9.00ms"},
		{Of: regexp.MustCompile(`"count":\d+`), As: `"count":5000`}, {Of: regexp.MustCompile(`"per_second":[\d.e+]+`), As: `"per_second":1000`},
		{Of: regexp.MustCompile(`"database_bytes":[1-9]\d*`), As: `"database_bytes":20971520`},
	}
	f.Shell("bench")
	f.Shell("bench --yes --duration 100ms --clients 3")
	f.Shell("bench --yes --duration 100ms --clients 2 -o json")
	f.Shell("bench --yes --duration 100ms --clients 1 --endpoints 127.0.0.1:1 --command-timeout 3s -o json")
	f.Shell("bench --yes --clients 0")
	f.NothingLeft()
	f.Golden("bench")
}

func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	watch := f.Etcd.Client().Watch(testkit.Context(t), f.Prefix, clientv3.WithPrefix())
	done := make(chan clitest.Result, 1)
	go func() { done <- f.RunWith(ctx, "bench", "--yes", "--duration", "1h") }()
	testkit.Got(t, watch, "it writes")
	cancel(exit.Interrupted{Signal: syscall.SIGINT})
	r := testkit.Got(t, done, "it ends")
	require.Equal(t, 130, r.Code, r.Err)
	require.Empty(t, r.Out)
	f.NothingLeft()
}
