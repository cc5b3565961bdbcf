package cli

import (
	"bytes"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/guard"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// asCommand has the test binary be the command.
const asCommand = "ETCDKIT_TEST_COMMAND"

// clockAhead is how far the clock of such a process is ahead, for `jobs run`.
const clockAhead = "ETCDKIT_TEST_CLOCK_AHEAD"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == guard.Argument:
		os.Exit(guard.Main(os.Args[2:]))
	case len(os.Args) > 1 && os.Args[1] == guard.FrontArgument:
		os.Exit(guard.Front(os.Args[2:]))
	case os.Getenv(asCommand) != "":
		_ = os.Unsetenv(asCommand)
		if ahead, err := time.ParseDuration(os.Getenv(clockAhead)); err == nil {
			wallClock = func() time.Time { return time.Now().Add(ahead) }
		}
		os.Exit(Main(os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}
	for _, v := range os.Environ() { // the transcripts do not depend on the variables of a developer
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "ETCDCTL_") || strings.HasPrefix(name, "ETCDKIT_") {
			_ = os.Unsetenv(name)
		}
	}
	// What this process ignores, as nohup and a script's background job have it, its children ignore too.
	// They do not ignore what it catches.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	embedtest.Main(m)
}

// A help that cannot be printed is an error, as every result is.
func TestHelpThatCannotBePrinted(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"--help"}, {"run", "--help"}, {"version"}, {"completion", "bash"}} {
		var errs bytes.Buffer
		require.Equal(t, exitFailed, execute(t.Context(), args, Streams{In: strings.NewReader(""), Out: full{}, Err: &errs}), args)
		require.Contains(t, errs.String(), "no space left on device", args)
	}
}

// A wrong command line is refused before etcd is asked, with what would be right.
func TestUsage(t *testing.T) {
	t.Parallel()
	for line, text := range map[string]string{
		"lss":                         "ls",
		"jobs pasue x":                "Did you mean 'etcdkit jobs pause'?",
		"elections stepdown x":        "Did you mean 'etcdkit elections step-down'?",
		"show":                        "Usage: etcdkit show NAME",
		"evict charge":                "Usage: etcdkit evict NAME TOKEN",
		"requests list":               "Usage: etcdkit requests list STORE",
		"completion foo":              `unknown command "foo"`,
		"ls -N x --command-timeout 0": "--command-timeout",
		"top -N x --rows 0":           "--rows",
	} {
		var out, errs bytes.Buffer
		code := execute(testkit.Context(t), append(strings.Fields(line), "--endpoints", "127.0.0.1:1"), Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		require.Equal(t, exitUsage, code, line)
		require.Contains(t, errs.String(), text, line)
		require.NotContains(t, errs.String(), `\t`, line)
		require.Empty(t, out.String(), line)
	}
}

// The text of an error can be of another process: it does not steer the operator's terminal.
func TestErrorsAreEscaped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testkit.Context(t)
	m, err := concurrency.NewMutex(f.session("web-7"), "report")
	require.NoError(t, err)
	f.permit(m.Lock(ctx, concurrency.ID("deploy")))
	resp, err := f.etcd.Client().Get(ctx, f.prefix, clientv3.WithPrefix())
	require.NoError(t, err)
	for _, kv := range resp.Kvs {
		forged := strings.ReplaceAll(string(kv.Value), "web-7", `\u001b[2Jweb-7`)
		_, err := f.etcd.Client().Put(ctx, string(kv.Key), forged, clientv3.WithLease(clientv3.LeaseID(kv.Lease)))
		require.NoError(t, err)
	}
	r := f.run("hold", "-N", "test", "report", "--id", "deploy", "--for", "1m", "-n")
	require.Equal(t, exitNotAcquired, r.code, r.err)
	require.Contains(t, r.err, `\x1b[2Jweb-7`)
}

// The version is there as a table and as JSON; its values are of the build.
func TestVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.also = []pattern{
		{regexp.MustCompile(`\bgo\d[^"\s]*`), "go1.26.0"}, {regexp.MustCompile(`"version":"[^"]*"`), `"version":"v0.1.0"`}, {regexp.MustCompile(`etcdkit {2,}\S+`), "etcdkit  v0.1.0"},
		{regexp.MustCompile(`unknown`), "v3.6.16"}, // the binary of a test does not know what it is built of
	}
	f.shell("version")
	f.shell("version -o json")
	f.golden("version")
}
