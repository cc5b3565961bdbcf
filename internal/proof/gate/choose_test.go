package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What cannot differ, or runs in make verify, is left out with its reason, and nothing else is.
func TestChoose(t *testing.T) {
	t.Parallel()
	all := []pkg{
		{path: "./concurrency", etcd: true}, {path: "./concurrency/limithttp", etcd: true}, {path: "./console", etcd: true}, {path: "./examples/fleet", etcd: true}, {path: "./internal/examples/program", etcd: true}, {path: "./examples-of-none", etcd: true},
		{path: "./internal/proof/deptest", etcd: false}, {path: "./internal/queue", etcd: false}, {path: "./internal/ticks"}, {path: "./internal/rate", etcd: true, quiet: true}, {path: "./observe/otelkit", etcd: true, through: true},
	}
	for target, want := range map[string][]string{
		"test":   {"./examples/fleet", "./internal/examples/program", "./internal/proof/deptest"},
		"race":   {"./concurrency", "./concurrency/limithttp", "./console", "./examples-of-none", "./internal/queue", "./internal/ticks", "./internal/rate", "./observe/otelkit"},
		"etcd37": {"./concurrency", "./concurrency/limithttp", "./examples-of-none"},
	} {
		run, out := choose(target, all)
		require.Equal(t, want, run, target)
		require.Len(t, out, len(all)-len(want), target)
		for _, l := range out {
			require.NotEmpty(t, l.why, "%s %s", target, l.path)
		}
	}
}

func TestTestedOf(t *testing.T) {
	t.Parallel()
	const listed = "github.com/etcdkit/etcdkit/cmd/etcdkit fmt go.etcd.io/etcd/client/v3\n" + // a program without tests
		"github.com/etcdkit/etcdkit/cmd/quiet fmt\n" + // one without etcd
		"github.com/etcdkit/etcdkit/concurrency.test fmt go.etcd.io/etcd/client/v3 os\n" +
		"github.com/etcdkit/etcdkit/internal/queue.test fmt os\n" +
		"github.com/etcdkit/etcdkit/compat go.etcd.io/etcd/server/v3/embed\n" +
		"github.com/etcdkit/etcdkit/compat [github.com/etcdkit/etcdkit/compat.test] go.etcd.io/etcd/server/v3/embed\n" +
		"github.com/etcdkit/etcdkit/compat.test go.etcd.io/etcd/server/v3/embed\n"
	require.Equal(t, []pkg{{path: "./concurrency", etcd: true}, {path: "./internal/queue", etcd: false}, {path: "./compat", etcd: true}}, testedOf(listed))
	require.Equal(t, []string{"./cmd/etcdkit"}, untestedOf(listed))
}

func TestSlowestFirst(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"./d", "./b/c", "./a", "./b"}, slowestFirst([]string{"./a", "./b", "./b/c", "./d"}, []string{"gone", "d", "b/c"}))
}
