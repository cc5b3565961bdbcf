package cli

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
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

var update = flag.Bool("update", false, "write the transcripts into testdata")

// fixture is a namespace, "test", of the shared etcd, below a prefix of its own.
type fixture struct {
	t      *testing.T
	etcd   *embedtest.Cluster
	prefix string
	known  []known // words that differ from run to run
	also   []pattern
	script strings.Builder
}

// known is a word that differs from run to run, and what a transcript shows in its place.
type known struct{ text, as string }

func newFixture(t *testing.T) *fixture {
	t.Helper()
	etcd := embedtest.Shared(t)
	f := &fixture{t: t, etcd: etcd, prefix: etcd.Prefix(t)}
	for { // tokens are no numbers that a transcript has for another reason
		resp, err := etcd.Client().Put(t.Context(), f.prefix, "")
		require.NoError(t, err)
		if resp.Header.Revision > 1000 {
			break
		}
	}
	for i, at := range etcd.Endpoints() {
		f.shows(at, fmt.Sprintf("127.0.0.1:%d", 2379+i))
	}
	_, err := etcd.Client().Delete(t.Context(), f.prefix)
	require.NoError(t, err)
	return f
}

// app is an execution of the command whose connections have these options.
func (f *fixture) app(errs io.Writer, dial ...grpc.DialOption) *app {
	a := &app{std: Streams{Out: &bytes.Buffer{}, Err: errs}, uncatch: func() {}, output: "table", etcd: connection{timeout: 5 * time.Second, prefix: f.prefix, namespace: "test"}}
	a.etcd.once.Do(func() {
		a.etcd.made = &clientv3.Config{Endpoints: f.etcd.Endpoints(), Logger: zap.NewNop(), DialOptions: dial}
	})
	return a
}

// session starts a session of a service.
func (f *fixture) session(owner string) *concurrency.Session {
	f.t.Helper()
	return testkit.SessionOn(f.t, f.etcd.NewClient(f.t, nil).Client, f.prefix, &concurrency.SessionOptions{Owner: owner})
}

// shows has a transcript show another word in place of one.
func (f *fixture) shows(word any, as string) { f.known = append(f.known, known{fmt.Sprint(word), as}) }

// real returns a line of a transcript with the words of this run.
func (f *fixture) real(line string) string {
	for _, k := range f.known {
		line = strings.ReplaceAll(line, k.as, k.text)
	}
	return line
}

// result is what an execution of the command has returned and written.
type result struct {
	code     int
	out, err string
}

// run executes the command.
func (f *fixture) run(args ...string) result { return f.runWith(testkit.Context(f.t), args...) }

func (f *fixture) runWith(ctx context.Context, args ...string) result {
	var out, errs bytes.Buffer
	args = append([]string{"--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix}, args...)
	code := execute(ctx, args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return result{code, out.String(), errs.String()}
}

// shell executes a command line and appends it and its results to the transcript.
func (f *fixture) shell(line string) result {
	f.t.Helper()
	r := f.run(words(f.t, f.real(line))...)
	fmt.Fprintf(&f.script, "$ etcdkit %s\n%s%s", line, r.out, r.err)
	if r.code != 0 {
		fmt.Fprintf(&f.script, "[exit code %d]\n", r.code)
	}
	return r
}

// stream executes a command line that prints until a signal ends it, which one of acts sends. It appends the line and
// its results to the transcript.
func (f *fixture) stream(line string, acts func(interrupt func()) []act) {
	f.t.Helper()
	ctx, cancel := context.WithCancelCause(testkit.Context(f.t))
	defer cancel(nil)
	out, errs := &stage{acts: acts(func() { cancel(interrupted{syscall.SIGINT}) })}, &bytes.Buffer{}
	args := append([]string{"--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix}, words(f.t, f.real(line))...)
	require.Equal(f.t, 130, execute(ctx, args, Streams{In: strings.NewReader(""), Out: out, Err: errs}), errs)
	require.NotContains(f.t, out.String(), "\x1b")
	fmt.Fprintf(&f.script, "$ etcdkit %s\n%s%s[exit code 130]\n", line, out, errs)
}

// words splits a line at spaces; '…' quotes.
func words(t *testing.T, line string) (out []string) {
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

// pattern is text that differs from run to run, and what a transcript shows in its place.
type pattern struct {
	of *regexp.Regexp
	as string
}

var patterns = []pattern{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "2026-11-23T12:00:00Z"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), "2026-11-23 12:30:00"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "12:00:00"},
	{regexp.MustCompile(`by \S+@\S+, process \d+`), "by ada@ci-3, process 4242"},
	{regexp.MustCompile(`"revision":"\d+"`), `"revision":"4720"`},
	{regexp.MustCompile(`"lease":"\d+"`), `"lease":"7587"`},
	{regexp.MustCompile(`revision( +)\d+`), "revision${1}4720"},
	{regexp.MustCompile(`"(\w+_seconds)":[\d.e-]+`), `"${1}":0.5`},
	{regexp.MustCompile(`(<1|\b\d{1,3})ms\b|\b\d+\.\d+s\b`), "20ms"},
	{regexp.MustCompile(`\b3\.\d\.\d+\b`), "3.6.16"},
	{regexp.MustCompile(`\b2h59m\d+s\b`), "2h59m59s"},
	{regexp.MustCompile(`\bterm \d+`), "term 2"},
	{regexp.MustCompile(`\b\d+ live sessions`), "8 live sessions"}, // one that is being closed may count
	{regexp.MustCompile(`\b\d+ leases? in`), "14 leases in"},
	{regexp.MustCompile(`\d+\.\d MiB`), "20.5 MiB"},
	{regexp.MustCompile(`(  |oldest by \S+ for )\d+s\b`), "${1}2s"}, // measured: others are of flags and settings
	{regexp.MustCompile(` {2,}`), "  "},
}

// hide hides the revisions that a transcript names from the patterns, and unhide brings them back.
var hide, unhide = strings.NewReplacer("472", "\ue000", "473", "\ue001"), strings.NewReplacer("\ue000", "472", "\ue001", "473")

// golden compares the transcript with testdata/NAME.golden.
func (f *fixture) golden(name string) {
	f.t.Helper()
	got := regexp.MustCompile(`(?m)^\$ .*$`).ReplaceAllStringFunc(f.script.String(), hide.Replace)
	for _, k := range f.known {
		word := regexp.QuoteMeta(k.text)
		if !strings.HasPrefix(k.text, "/") {
			word = `\b` + word
		}
		got = regexp.MustCompile(word+`\b`).ReplaceAllLiteralString(got, hide.Replace(k.as))
	}
	for _, p := range append(patterns[:len(patterns):len(patterns)], f.also...) {
		got = p.of.ReplaceAllString(got, p.as)
	}
	got = unhide.Replace(got)
	path := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(f.t, os.MkdirAll("testdata", 0o755))
		require.NoError(f.t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(f.t, err)
	require.Equal(f.t, string(want), got, "go test ./cmd/etcdkit/internal/cli -update writes it again")
}

// permit returns a permit that was granted.
func (f *fixture) permit(p *concurrency.Permit, err error) *concurrency.Permit {
	f.t.Helper()
	require.NoError(f.t, err)
	return p
}
