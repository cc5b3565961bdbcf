package clitest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// Update has tests write what they would compare.
var Update = flag.Bool("update", false, "write the transcripts into testdata")

// Fixture is a namespace, "test", of the shared etcd, below a prefix of its own.
type Fixture struct {
	T      *testing.T
	Etcd   *embedtest.Cluster
	Prefix string
	Also   []Pattern // beside those of all transcripts
	Script strings.Builder
	known  []known // words that differ from run to run
}

// known is a word that differs from run to run, and what a transcript shows in its place.
type known struct{ text, as string }

// New returns a fixture on the etcd that the tests of a package share.
func New(t *testing.T) *Fixture {
	t.Helper()
	etcd := embedtest.Shared(t)
	f := &Fixture{T: t, Etcd: etcd, Prefix: etcd.Prefix(t)}
	for { // tokens are no numbers that a transcript has for another reason
		resp, err := etcd.Client().Put(t.Context(), f.Prefix, "")
		require.NoError(t, err)
		if resp.Header.Revision > 1000 {
			break
		}
	}
	for i, at := range etcd.Endpoints() {
		f.Shows(at, fmt.Sprintf("127.0.0.1:%d", 2379+i))
	}
	_, err := etcd.Client().Delete(t.Context(), f.Prefix)
	require.NoError(t, err)
	return f
}

// Call is a call of the command whose connections have these options. Its result is in Std.Out, a bytes.Buffer.
func (f *Fixture) Call(errs io.Writer, dial ...grpc.DialOption) *verb.Call {
	c := &verb.Call{Std: verb.Streams{Out: &bytes.Buffer{}, Err: errs}, Uncatch: func() {}, Output: "table"}
	c.Etcd.Define(pflag.NewFlagSet("", pflag.ContinueOnError))
	c.Etcd.Endpoints, c.Etcd.Prefix, c.Etcd.Namespace, c.Etcd.Dial = f.Etcd.Endpoints(), f.Prefix, "test", dial
	return c
}

// Execute executes a verb by itself, on the Call that it was made of.
func Execute(ctx context.Context, cmd *cobra.Command, args ...string) error {
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

// Shows has a transcript show another word in place of one.
func (f *Fixture) Shows(word any, as string) { f.known = append(f.known, known{fmt.Sprint(word), as}) }

// Real returns a line of a transcript with the words of this run.
func (f *Fixture) Real(line string) string {
	for _, k := range f.known {
		line = strings.ReplaceAll(line, k.as, k.text)
	}
	return line
}

// Result is what an execution of the command has returned and written.
type Result struct {
	Code     int
	Out, Err string
}

// Args are the arguments of a command on the etcd and the prefix of the fixture.
func (f *Fixture) Args(args ...string) []string {
	return append([]string{"--endpoints", strings.Join(f.Etcd.Endpoints(), ","), "--prefix", f.Prefix}, args...)
}

// Run executes the command.
func (f *Fixture) Run(args ...string) Result { return f.RunWith(testkit.Context(f.T), args...) }

// RunWith is Run with a ctx that ends the command.
func (f *Fixture) RunWith(ctx context.Context, args ...string) Result {
	var out, errs bytes.Buffer
	code := cli.Execute(ctx, f.Args(args...), verb.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return Result{Code: code, Out: out.String(), Err: errs.String()}
}

// Shell executes a command line and appends it and its results to the transcript.
func (f *Fixture) Shell(line string) Result {
	f.T.Helper()
	r := f.Run(Words(f.T, f.Real(line))...)
	fmt.Fprintf(&f.Script, "$ etcdkit %s\n%s%s", line, r.Out, r.Err)
	if r.Code != 0 {
		fmt.Fprintf(&f.Script, "[exit code %d]\n", r.Code)
	}
	return r
}

// Stream executes a command line that prints until a signal ends it, which one of acts sends. It appends the line and
// its results to the transcript.
func (f *Fixture) Stream(line string, acts func(interrupt func()) []Act) {
	f.T.Helper()
	ctx, cancel := context.WithCancelCause(testkit.Context(f.T))
	defer cancel(nil)
	out, errs := &Stage{Acts: acts(func() { cancel(exit.Interrupted{Signal: syscall.SIGINT}) })}, &bytes.Buffer{}
	args := f.Args(Words(f.T, f.Real(line))...)
	require.Equal(f.T, 130, cli.Execute(ctx, args, verb.Streams{In: strings.NewReader(""), Out: out, Err: errs}), errs)
	require.NotContains(f.T, out.String(), "\x1b")
	fmt.Fprintf(&f.Script, "$ etcdkit %s\n%s%s[exit code 130]\n", line, out, errs)
}

// Words splits a line at spaces; '…' quotes.
func Words(t *testing.T, line string) (out []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	require.Zero(t, strings.Count(line, "'")%2, line)
	return out
}

// Pattern is text that differs from run to run, and what a transcript shows in its place.
type Pattern struct {
	Of *regexp.Regexp
	As string
}

var patterns = []Pattern{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "2026-11-23T12:00:00Z"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), "2026-11-23 12:30:00"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "12:00:00"},
	{regexp.MustCompile(`by \S+@\S+, process \d+`), "by ada@ci-3, process 4242"},
	{regexp.MustCompile(`set by \S+@\S+ `), "set by ada@ci-3 "},
	{regexp.MustCompile(`(set by \S+ )\d+s ago`), "${1}2s ago"},
	{regexp.MustCompile(`"revision":"\d+"`), `"revision":"4720"`},
	{regexp.MustCompile(`"lease":"\d+"`), `"lease":"7587"`},
	{regexp.MustCompile(`revision( +)\d+`), "revision${1}4720"},
	{regexp.MustCompile(`"(\w+_seconds)":[\d.e-]+`), `"${1}":0.5`},
	{regexp.MustCompile(`(<1|\b\d{1,3})ms\b( to \d{1,3}ms\b)?|\b\d+\.\d+s\b`), "20ms"},
	{regexp.MustCompile(`\b3\.\d\.\d+\b`), "3.6.16"},
	{regexp.MustCompile(`\b2h59m\d+s\b`), "2h59m59s"},
	{regexp.MustCompile(`\bterm \d+`), "term 2"},
	{regexp.MustCompile(`\b\d+ live sessions`), "8 live sessions"}, // one that is being closed may count
	{regexp.MustCompile(`\b\d+ leases? in`), "14 leases in"},
	{regexp.MustCompile(`\d+\.\d MiB`), "20.5 MiB"},
	{regexp.MustCompile(`(  |oldest by \S+ for )\d+s\b`), "${1}2s"}, // measured: others are of flags and settings
	{regexp.MustCompile(` {2,}`), "  "},
}

// hide hides the revisions that a transcript names from the patterns, and its endpoints from revisions that are equal to a
// port; unhide brings them back.
var hide, unhide = strings.NewReplacer("472", "\ue000", "473", "\ue001", "127.0.0.1:23", "\ue002"), strings.NewReplacer("\ue000", "472", "\ue001", "473", "\ue002", "127.0.0.1:23")

// Golden compares the transcript with cli/testdata/NAME.golden.
func (f *Fixture) Golden(name string) {
	f.T.Helper()
	got := regexp.MustCompile(`(?m)^\$ .*$`).ReplaceAllStringFunc(f.Script.String(), hide.Replace)
	for _, k := range f.known {
		word := regexp.QuoteMeta(k.text)
		if !strings.HasPrefix(k.text, "/") {
			word = `\b` + word
		}
		got = regexp.MustCompile(word+`\b`).ReplaceAllLiteralString(got, hide.Replace(k.as))
	}
	for _, p := range append(patterns[:len(patterns):len(patterns)], f.Also...) {
		got = p.Of.ReplaceAllString(got, p.As)
	}
	got = unhide.Replace(got)
	path := filepath.Join(testdata(), name+".golden")
	if *Update {
		require.NoError(f.T, os.MkdirAll(testdata(), 0o755))
		require.NoError(f.T, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(f.T, err)
	require.Equal(f.T, string(want), got, "go test ./cmd/etcdkit/internal/cli/... -update writes it again")
}

// testdata is the folder of the transcripts of all verbs: of the package cli, from which the reference is made.
func testdata() string {
	if _, err := os.Stat("testdata/json.md"); err == nil {
		return "testdata"
	}
	return "../testdata"
}
