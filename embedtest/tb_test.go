package embedtest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// fakeTB is a TB whose failure does not fail the real test.
type fakeTB struct {
	*testing.T
	mu       sync.Mutex
	cleanups []func()
	logs     strings.Builder
	failed   bool
	skipped  string
	fatal    string
	over     bool
}

func (f *fakeTB) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *fakeTB) Failed() bool     { return f.failed }

func (f *fakeTB) Logf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		panic("log after the end of the test")
	}
	fmt.Fprintf(&f.logs, format, args...)
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.failed, f.fatal = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *fakeTB) Skipf(format string, args ...any) {
	f.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// run runs a test body and its cleanups to the end.
func (f *fakeTB) run(body func()) *fakeTB {
	done := make(chan struct{})
	go func() { defer close(done); body() }()
	<-done
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.cleanups[i]()
	}
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	return f
}

func TestLogIsShownOnlyOnFailure(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	for _, fail := range []bool{false, true} {
		tb := &fakeTB{T: t}
		tb.run(func() {
			c := Start(tb, nil)
			c.NewClient(tb, nil).Cut()
			tb.failed = fail
		})
		require.Empty(t, tb.fatal)
		require.Equal(t, fail, strings.Contains(tb.logs.String(), "closed etcd server"), tb.logs.String())
	}
}

func TestGivenLoggerGetsTheLog(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	var buf logBuffer
	enc := zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig())
	lg := zap.New(zapcore.NewCore(enc, zapcore.AddSync(&buf), zapcore.InfoLevel))
	tb := &fakeTB{T: t}
	tb.run(func() {
		Start(tb, &Options{Logger: lg})
		tb.failed = true
	})
	require.Contains(t, buf.String(), "closed etcd server")
	require.Empty(t, tb.logs.String())
}

func TestLogKeepsItsEnd(t *testing.T) {
	t.Parallel()
	var b logBuffer
	for i := range 10_000 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	s := b.String()
	require.Less(t, len(s), 2*logKeep)
	require.True(t, strings.HasPrefix(s, "(older lines omitted"))
	require.True(t, strings.HasSuffix(s, "\nline 9999\n"))
}

func TestStartFailsTheTest(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	tb := &fakeTB{T: t}
	tb.run(func() { Start(tb, &Options{Members: -1}) })
	require.Contains(t, tb.fatal, "Members")
}

// With EMBEDTEST_ENDPOINTS, calls that would break the server skip the test.
func TestExternal(t *testing.T) {
	ownServersOnly(t)
	own, err := New(t.Context(), nil)
	require.NoError(t, err)
	defer own.Close()
	t.Setenv("EMBEDTEST_ENDPOINTS", " "+own.Endpoints()[0]+" ,")

	var prefix string
	tb := &fakeTB{T: t}
	tb.run(func() {
		for _, c := range []*Cluster{Start(tb, nil), Shared(tb)} {
			require.True(t, c.External())
			require.Equal(t, own.Endpoints(), c.Endpoints())
			prefix = c.Prefix(tb)
			put(t, c.NewClient(tb, nil).Client, prefix+"k", "1")
			require.Equal(t, "1", value(t, own, prefix+"k"))
			require.Equal(t, 0, c.Leader())
			before := c.RaftIndex()
			require.NotZero(t, before)
			id := grant(t, c.Client(), 60)
			require.NoError(t, c.ExpireLease(t.Context(), id))
			require.Equal(t, before+2, c.RaftIndex())
		}
	})
	require.Empty(t, tb.fatal)
	require.Empty(t, value(t, own, prefix+"k"), "the test's keys are gone")

	for name, body := range map[string]func(tb *fakeTB, c *Cluster){
		"Crash":    func(_ *fakeTB, c *Cluster) { _ = c.Crash(0) },
		"Stop":     func(_ *fakeTB, c *Cluster) { _ = c.Stop(0) },
		"Restart":  func(_ *fakeTB, c *Cluster) { _ = c.Restart(t.Context(), 0) },
		"CutPeers": func(_ *fakeTB, c *Cluster) { _ = c.CutPeers(0) },
		"Move":     func(_ *fakeTB, c *Cluster) { _ = c.MoveLeader(t.Context(), 0) },
		"Compact":  func(_ *fakeTB, c *Cluster) { _, _ = c.Compact(t.Context()) },
		"NoSpace":  func(_ *fakeTB, c *Cluster) { _ = c.SetNoSpace(t.Context(), true) },
		"Auth":     func(_ *fakeTB, c *Cluster) { _ = c.EnableAuth(t.Context(), "root", "x") },
		"AddUser":  func(_ *fakeTB, c *Cluster) { _ = c.AddUser(t.Context(), "u", "x") },
		"members":  func(tb *fakeTB, _ *Cluster) { Start(tb, &Options{Members: 3}) },
		"TLS":      func(tb *fakeTB, _ *Cluster) { Start(tb, &Options{TLS: true}) },
	} {
		tb := &fakeTB{T: t}
		tb.run(func() { body(tb, Start(tb, nil)) })
		require.Contains(t, tb.skipped, "EMBEDTEST_ENDPOINTS", name)
	}

	c, err := New(t.Context(), nil)
	require.NoError(t, err)
	require.ErrorIs(t, c.Crash(0), ErrExternal)
	worker, err := c.Dial(t.Context(), nil)
	require.NoError(t, err)
	put(t, worker.Client, "k", "confined")
	require.Equal(t, "confined", value(t, c, "k"), "all its clients see the same keys")
	require.Empty(t, value(t, own, "k"), "and no other client does")
	require.Len(t, below(t, own, "/embedtest/new-"), 1)
	require.NoError(t, c.Close())
	require.Empty(t, below(t, own, ""), "nothing is left")
	_, err = New(t.Context(), &Options{Members: 3})
	require.ErrorIs(t, err, ErrExternal)
}

// Main and Run fail a test binary that leaks goroutines. Run ignores those that its caller
// names and those that ran before. The test runs this binary again.
func TestMainFindsLeaks(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits until goroutines count as left behind: 3.5 s")
	}
	for name, c := range map[string]struct {
		env     []string
		found   []string
		ignored []string
	}{
		"Main, no leak":         {},
		"Main, a leak":          {env: []string{"EMBEDTEST_TEST_LEAK=1"}, found: []string{"leakOne", "leakAnother"}},
		"Run, no leak":          {env: []string{"EMBEDTEST_TEST_RUN=leakOne"}},
		"Run, one of two leaks": {env: []string{"EMBEDTEST_TEST_RUN=leakOne", "EMBEDTEST_TEST_LEAK=1"}, found: []string{"leakAnother"}, ignored: []string{"leakOne"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestLeakForMain$", "-test.v")
			cmd.Env = append(append(os.Environ(), "EMBEDTEST_TEST_CHILD=1"), c.env...)
			out, err := cmd.CombinedOutput()
			require.Contains(t, string(out), "--- PASS: TestLeakForMain")
			require.Equal(t, c.found == nil, err == nil, "%s", out)
			require.Equal(t, c.found != nil, strings.Contains(string(out), "goroutines left behind"), "%s", out)
			for _, f := range c.found {
				require.Contains(t, string(out), "embedtest."+f+"(")
			}
			for _, f := range c.ignored {
				require.NotContains(t, string(out), "embedtest."+f+"(")
			}
			ran := len(c.env) > 0 && strings.HasPrefix(c.env[0], "EMBEDTEST_TEST_RUN")
			require.Equal(t, ran, strings.Contains(string(out), "the caller's own teardown"), "%s", out)
		})
	}
}

func TestLeakForMain(t *testing.T) {
	if os.Getenv("EMBEDTEST_TEST_CHILD") == "" {
		return // for TestMainFindsLeaks only
	}
	Shared(t).NewClient(t, nil)
	if os.Getenv("EMBEDTEST_TEST_LEAK") != "" {
		go leakOne()
		go leakAnother()
	}
}
