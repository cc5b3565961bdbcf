package cli_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// A help that cannot be printed is an error, as every result is.
func TestHelpThatCannotBePrinted(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"--help"}, {"run", "--help"}, {"version"}, {"completion", "bash"}} {
		var errs bytes.Buffer
		require.Equal(t, exit.Failed, cli.Execute(t.Context(), args, verb.Streams{In: strings.NewReader(""), Out: clitest.Full{}, Err: &errs}), args)
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
		code := cli.Execute(testkit.Context(t), append(strings.Fields(line), "--endpoints", "127.0.0.1:1"), verb.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		require.Equal(t, exit.Usage, code, line)
		require.Contains(t, errs.String(), text, line)
		require.NotContains(t, errs.String(), `\t`, line)
		require.Empty(t, out.String(), line)
	}
}

// The text of an error can be of another process: it does not steer the operator's terminal.
func TestErrorsAreEscaped(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	m, err := concurrency.NewMutex(f.Session("web-7"), "report")
	require.NoError(t, err)
	f.Permit(m.Lock(ctx, concurrency.ID("deploy")))
	f.Forge("web-7", `\u001b[2Jweb-7`)
	r := f.Run("hold", "-N", "test", "report", "--id", "deploy", "--for", "1m", "-n")
	require.Equal(t, exit.NotAcquired, r.Code, r.Err)
	require.Contains(t, r.Err, `\x1b[2Jweb-7`)
}

// The version is there as a table and as JSON; its values are of the build.
func TestVersion(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Also = []clitest.Pattern{
		{Of: regexp.MustCompile(`\bgo\d[^"\s]*`), As: "go1.26.0"}, {Of: regexp.MustCompile(`"version":"[^"]*"`), As: `"version":"v0.1.0"`}, {Of: regexp.MustCompile(`etcdkit {2,}\S+`), As: "etcdkit  v0.1.0"},
		{Of: regexp.MustCompile(`unknown`), As: "v3.6.16"}, // the binary of a test does not know what it is built of
	}
	f.Shell("version")
	f.Shell("version -o json")
	f.Golden("version")
}
