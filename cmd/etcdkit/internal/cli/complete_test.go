package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// completed returns what a shell offers for a command line that ends in the last argument.
func completed(f *clitest.Fixture, args ...string) string {
	f.T.Helper()
	args = append([]string{"__complete", "--endpoints", strings.Join(f.Etcd.Endpoints(), ","), "--prefix", f.Prefix}, args...)
	var out, errs clitest.Writer
	code := cli.Execute(f.T.Context(), args, verb.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	require.Zero(f.T, code, string(errs))
	return strings.TrimSpace(string(out))
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	f.Crowd("charge")
	s := f.Session("web-7")
	m, err := concurrency.NewMutex(s, "charge")
	require.NoError(t, err)
	f.Permit(m.Lock(ctx))
	_, err = f.Locker("web-7").Do(ctx, "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	f.Lost("orders", clitest.Order("1"))
	for line, want := range map[string]string{
		"show -N test ":                "semaphore/charge\nmutex/charge\n:4",
		"show -N test mu":              "mutex/charge\n:4",
		"evict -N test mutex/":         "mutex/charge\n:4",
		"evict -N test charge ":        ":4", // a token is no file
		"run -N test ":                 "charge\n:4",
		"run -N test charge -- ":       ":0",
		"hold -N test ":                "charge\n:4",
		"hold --limit 2 -N test s":     ":4", // it takes no kind
		"hold --leader -N test ":       ":4",
		"jobs pause -N test ":          "invoices\n:4",
		"requests list -N test ":       "orders\n:4",
		"ls -N ":                       "test\n:4",
		"ls -o ":                       "table\njson\n:4",
		"elections step-down -N test ": ":4",
		"show ":                        ":4", // without a namespace
	} {
		require.Equal(t, want, completed(f, strings.Split(line, " ")...), line)
	}
	for _, name := range []string{"a`touch x`", "a$(id)", "a${IFS}b", "a;b", "a b", "a|b", "a>b", "a'b", `a"b`, `a\b`, "~a", "a*", "a#b", "größe-1.2"} {
		sem, err := concurrency.NewSemaphore(s, name, 2, nil)
		require.NoError(t, err)
		f.Permit(sem.Acquire(ctx))
	}
	require.Equal(t, "semaphore/charge\nsemaphore/größe-1.2\nmutex/charge\n:4", completed(f, "show", "-N", "test", ""), "a shell evaluates what it completes")
	require.Equal(t, ":4", completed(f, "--endpoints", "127.0.0.1:1", "--user", "app", "show", "-N", "test", ""), "no password is asked for")
	r := f.Run("completion", "bash")
	require.Zero(t, r.Code)
	require.Contains(t, r.Out, "__start_etcdkit")
	f.Shell("completion tcsh")
	f.Golden("completion")
}
