package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// program is the command as a process of its own.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *bufio.Reader
	errs *lockedBuffer
	done chan struct{}
}

// lockedBuffer may be read while a process writes it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start starts `etcdkit run` with arguments.
func (f *fixture) start(stdin io.Reader, args ...string) *program {
	f.t.Helper()
	p := f.prepare(stdin, args...)
	p.begin()
	return p
}

// prepare returns the program that start starts.
func (f *fixture) prepare(stdin io.Reader, args ...string) *program {
	f.t.Helper()
	self, err := os.Executable()
	require.NoError(f.t, err)
	p := &program{t: f.t, errs: &lockedBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(self, append([]string{"run", "--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix, "-N", "test"}, args...)...)
	p.cmd.Env = append(os.Environ(), asCommand+"=1")
	p.cmd.Stdin, p.cmd.Stderr = stdin, p.errs
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // in an orphaned process group the kernel drops SIGTSTP
	out, err := p.cmd.StdoutPipe()
	require.NoError(f.t, err)
	p.out = bufio.NewReader(out)
	return p
}

func (p *program) begin() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Start())
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill() // its guard kills the rest
	})
}

// line returns the next line that the command has written.
func (p *program) line() string {
	p.t.Helper()
	text := make(chan string, 1)
	go func() {
		s, _ := p.out.ReadString('\n')
		text <- strings.TrimSpace(s)
	}()
	return testkit.Got(p.t, text, "a line of the command; stderr: "+p.errs.String())
}

// code waits for the end and returns the exit code.
func (p *program) code() int {
	p.t.Helper()
	rest := make(chan struct{})
	go func() { defer close(rest); _, _ = io.Copy(io.Discard, p.out) }()
	testkit.Closed(p.t, rest, "its output has ended: no process of it is left; stderr: "+p.errs.String())
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// says waits for a text on standard error.
func (p *program) says(text string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.errs.String(), text) }, testkit.Soon, 10*time.Millisecond, "%s", text)
}

func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("no program"), 0o600))
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o700)) //nolint:gosec // it is executed
		return path
	}
	for i, c := range []struct {
		args   []string
		code   int
		errs   string
		result string
	}{
		{[]string{script("without", `test "$1 $2" = "a b" && exit 4`), "a", "b"}, 4, "", `"result":"command","code":4`},
		{[]string{script("nosuch", "#!/nosuch/shell -e\nexit 0")}, 127, "its interpreter /nosuch/shell does not exist", `"result":"not-found","code":127`},
		{[]string{script("binary", "\x7fno\x00program")}, 126, "exec format error", `"result":"not-executable","code":126`},
		{[]string{"true"}, 0, "", `{"schema":"etcdkit.exit/v1","result":"command","code":0}`},
		{[]string{"sh", "-c", "exit 3"}, 3, "", `"result":"command","code":3`},
		{[]string{"sh", "-c", "exit 75"}, 75, "", `"result":"command","code":75`},
		{[]string{"sh", "-c", "kill -TERM $$"}, 143, "", `"result":"command","code":143`},
		{[]string{"etcdkit-no-such-program"}, 127, "executable file not found", `"result":"not-found","code":127`},
		{[]string{plain}, 126, "permission denied", `"result":"not-executable","code":126`},
	} {
		exit := filepath.Join(dir, strconv.Itoa(i))
		p := f.start(nil, append([]string{"x" + strconv.Itoa(i), "--exit-file", exit, "--"}, c.args...)...)
		require.Equal(t, c.code, p.code(), "%v: %s", c.args, p.errs)
		require.Contains(t, p.errs.String(), c.errs, c.args)
		if c.errs == "" {
			require.Empty(t, p.errs.String(), c.args)
		}
		note, err := os.ReadFile(exit)
		require.NoError(t, err)
		require.Contains(t, string(note), c.result)
	}
	require.Empty(t, testkit.Keys(t, f.etcd, f.prefix, ""), "nothing is left in etcd")

	gone := filepath.Join(dir, "gone")
	require.NoError(t, os.Mkdir(gone, 0o700))
	p := f.start(nil, "gone", "--exit-file", filepath.Join(gone, "exit"), "--", "rm", "-r", gone)
	require.Zero(t, p.code(), "the exit code is the command's")
	require.Contains(t, p.errs.String(), `no such file or directory; the result is "command", with the exit code 0`)
}

// TestRunTranscript is the example of the documentation.
func TestRunTranscript(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m, err := concurrency.NewMutex(f.session("web-7"), "nightly-report")
	require.NoError(t, err)
	show := func(line string) {
		p := f.start(nil, words(t, line)...)
		out, err := io.ReadAll(p.out)
		require.NoError(t, err)
		code := p.code()
		fmt.Fprintf(&f.script, "$ etcdkit run -N test %s\n%s%s", line, out, p.errs)
		if code != 0 {
			fmt.Fprintf(&f.script, "[exit code %d]\n", code)
		}
	}
	show("nightly-report -- sh -c 'echo working on $ETCDKIT_KIND/$ETCDKIT_NAME'")
	show("import --limit 3 -- sh -c 'exit 3'")
	show("nightly-report --max-hold 50ms -- sleep 60")
	held := f.permit(m.Lock(testkit.Context(t)))
	show("nightly-report --no-wait -- ./report.sh")
	require.NoError(t, held.Release(testkit.Context(t)))
	show("nightly-report -- no-such-program")
	show("import --limit 4 -- ./import.sh")
	show("imports --limit 0 -- ./import.sh")
	f.golden("run")
}

// Mistakes are found before anything is acquired.
func TestRunUsage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for want, args := range map[string][]string{
		"the command follows NAME and --":           {"x", "true"},
		"COMMAND is missing":                        {"x"},
		"--limit and --leader exclude each other":   {"x", "--limit", "3", "--leader", "--", "true"},
		"--wait and --no-wait exclude each other":   {"x", "-n", "--wait", "3s", "--", "true"},
		"--ttl 5s is not a number of whole seconds": {"x", "--ttl", "5s", "--", "true"},
		"at least 36s with --grace 10s":             {"x", "--ttl", "15s", "--grace", "10s", "--", "true"},
		"--max-hold -1s is negative":                {"x", "--max-hold", "-1s", "--", "true"},
		"contains '/'":                              {"a/b", "--", "true"},
		"--grace 1000h0m0s is above 7h59m58.3s":     {"x", "--grace", "1000h", "--", "true"},
		"and at most 24h0m0s":                       {"x", "--ttl", "25h", "--", "true"},
		"--exit-file cannot be written: open /none": {"x", "--exit-file", "/none/exit", "--", "true"},
	} {
		r := f.run(append([]string{"run", "-N", "test"}, args...)...)
		require.Equal(t, exitUsage, r.code, "%v: %s", args, r.err)
		require.Contains(t, r.err, want)
	}
}

// The command gets standard input, the permit's values after inherited ones, and a nested one its own.
func TestRunEnvironment(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	self, err := os.Executable()
	require.NoError(t, err)
	nested := fmt.Sprintf(`read in; echo "$in $ETCDKIT_KIND $ETCDKIT_NAME $ETCDKIT_NAMESPACE"; env | grep -c ^ETCDKIT_TOKEN=; echo $ETCDKIT_TOKEN; echo $ETCDKIT_GUARD_KEY $ETCDKIT_GUARD_MOD_REVISION
%s=1 %s run --endpoints %s --prefix %s -N test inner --limit 2 -- sh -c 'echo $ETCDKIT_KIND $ETCDKIT_NAME; echo $ETCDKIT_TOKEN'`, asCommand, self, strings.Join(f.etcd.Endpoints(), ","), f.prefix)
	p := f.start(strings.NewReader("hello\n"), "outer", "--", "sh", "-c", nested)
	require.Equal(t, "hello mutex outer test", p.line())
	require.Equal(t, "1", p.line())
	outer, err := strconv.ParseInt(p.line(), 10, 64)
	require.NoError(t, err)
	key, mod, _ := strings.Cut(p.line(), " ")
	require.Contains(t, key, f.prefix)
	require.Equal(t, strconv.FormatInt(outer, 10), mod)
	require.Equal(t, "semaphore inner", p.line())
	inner, err := strconv.ParseInt(p.line(), 10, 64)
	require.NoError(t, err)
	require.Greater(t, inner, outer)
	require.Zero(t, p.code(), p.errs.String())
}

// Permits are held until everything that the command has started has ended: background jobs and daemons.
func TestRunWaitsForWhatIsLeft(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	p := f.start(nil, "x", "--", "sh", "-c", "(setsid cat "+fifo+" &) ; echo started; exit 5")
	require.Equal(t, "started", p.line())
	p.says("has exited and left cat (")
	require.Len(t, f.status("x").Holders, 1, "it is not released")
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Equal(t, 5, p.code())
	require.Empty(t, f.status("x").Holders)

	p = f.start(nil, "y", "--end-left", "--grace", "100ms", "--", "sh", "-c", "(setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &) ; exit 5")
	require.Equal(t, 5, p.code(), "it ends one that ignores SIGTERM")
	require.Empty(t, f.status("y").Holders)
}

// Signals reach the command, and not the two processes around it.
func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(nil, "x", "--", "sh", "-c", "for s in INT TERM HUP QUIT USR1 USR2; do trap \"echo $s\" $s; done; trap 'exit 9' WINCH; echo ready; while :; do sleep 0.02; done")
	require.Equal(t, "ready", p.line())
	for name, s := range map[string]os.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2} {
		require.NoError(t, p.cmd.Process.Signal(s))
		require.Equal(t, name, p.line())
	}
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGWINCH))
	require.Equal(t, 9, p.code())
}

// The signals that end a program withdraw a request that waits.
func TestRunWithdraws(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m, err := concurrency.NewMutex(f.session("web-7"), "x")
	require.NoError(t, err)
	f.permit(m.Lock(testkit.Context(t)))
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		p := f.start(nil, "x", "--", "true")
		p.says("behind web-7")
		require.NoError(t, p.cmd.Process.Signal(s))
		require.Equal(t, 128+int(s), p.code(), p.errs)
		require.Empty(t, f.status("x").Waiters, "%v", s)
		require.NotContains(t, p.errs.String(), "goroutine")
	}
}

// A limit of 0 takes the stored one. Without one nothing is stored; one of 0 is a pause, and the report says so.
func TestRunWithoutALimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, verb := range [][]string{{"run", "-N", "test", "x", "--limit", "0", "--", "true"}, {"hold", "-N", "test", "x", "--limit", "0", "--id", "a", "--for", "10s"}} {
		r := f.run(verb...)
		require.Equal(t, exitFailed, r.code, r.err)
		require.Contains(t, r.err, "no limit is stored")
		require.Contains(t, r.err, "etcdkit limit KIND/NAME N --create")
		require.Empty(t, testkit.Keys(t, f.etcd, f.prefix, ""), "nothing is stored")
	}
	sm, err := concurrency.NewSemaphore(f.session("web-7"), "x", 2, nil)
	require.NoError(t, err)
	require.NoError(t, f.permit(sm.Acquire(testkit.Context(t))).Release(testkit.Context(t)))
	p := f.start(nil, "x", "--limit", "0", "--", "echo", "done")
	require.Equal(t, "done", p.line())
	require.Zero(t, p.code(), p.errs)
	require.NoError(t, sm.SetLimit(testkit.Context(t), 0))
	p = f.start(nil, "x", "--limit", "0", "--", "echo", "done")
	p.says("waiting for semaphore/x: it is paused by a limit of 0")
	require.NoError(t, sm.SetLimit(testkit.Context(t), 1))
	require.Equal(t, "done", p.line())
	require.Zero(t, p.code(), p.errs)
}

// The reader of its messages may go away: the permit is kept, and the command is not affected.
func TestRunOutlivesItsReader(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	done := filepath.Join(t.TempDir(), "done")
	self, err := os.Executable()
	require.NoError(t, err)
	p := &program{t: t, errs: &lockedBuffer{}, cmd: exec.Command(self, "run", "--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix, "-N", "test", "x", "--", "sh", "-c", "(setsid sh -c 'sleep 2; touch "+done+"' &); yes | head -n 1; exit 5")}
	p.cmd.Env = append(os.Environ(), asCommand+"=1")
	p.cmd.Stderr = write
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	require.NoError(t, p.cmd.Start())
	require.NoError(t, write.Close())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	require.Equal(t, "y", p.line(), "a pipe of the command's own ends its writer as always")
	require.Equal(t, 5, p.code())
	require.FileExists(t, done, "what was left, and reported to nobody, ran to its end")
}

// A reader of its messages that does not read delays neither the end of the command nor the release.
func TestRunDoesNotWaitForItsReader(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, args := range map[string][]string{
		"x": {"--max-hold", "200ms"},
		"y": {}, // ended by evict
	} {
		read, write, err := os.Pipe()
		require.NoError(t, err)
		defer read.Close()
		fillPipe(t, write)
		p := f.prepare(nil, append(append([]string{name, "--grace", "100ms"}, args...), "--", "sh", "-c", "trap '' TERM; echo started; while :; do sleep 0.02; done")...)
		p.cmd.Stderr = write
		p.begin()
		require.NoError(t, write.Close())
		require.Equal(t, "started", p.line())
		if len(args) == 0 {
			r := f.run("evict", "-N", "test", "mutex/"+name, strconv.FormatInt(f.status(name).Holders[0].Token, 10), "--yes", "--reason", "maintenance")
			require.Zero(t, r.code, r.err)
		}
		require.Equal(t, 137, p.code())
		require.Empty(t, f.status(name).Holders)
	}
}

// fillPipe writes to a pipe until it is full.
func fillPipe(t *testing.T, pipe *os.File) {
	t.Helper()
	require.NoError(t, pipe.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	_, err := pipe.Write(make([]byte, 1<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// A signal at the moment of the grant withdraws the request or reaches the command, and is never lost.
//
// The commands run in parallel. They share etcd's server and the processors, but no key and no process group:
// each has its own. Load only shifts the moments, and at each moment the same must hold.
func TestRunIsInterruptedAtTheGrant(t *testing.T) {
	t.Parallel()
	for i := range 12 {
		for _, group := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-%v", i, group), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				watch := f.etcd.Client().Watch(testkit.Context(t), f.prefix, clientv3.WithPrefix())
				p := f.start(nil, "x", "--", "sh", "-c", "sleep 20; echo survived") // longer than a busy machine delays a signal
				for granted := false; !granted; {
					resp := testkit.Got(t, watch, "the key of the request")
					for _, ev := range resp.Events {
						granted = granted || strings.Contains(string(ev.Kv.Key), "/x/")
					}
				}
				time.Sleep(time.Duration(i) * 4 * time.Millisecond) // the moment is what is tested
				to := p.cmd.Process.Pid
				if group {
					to = -to
				}
				require.NoError(t, syscall.Kill(to, syscall.SIGTERM))
				require.Equal(t, 143, p.code(), "%s", p.errs)
				require.Empty(t, f.status("x").Holders)
			})
		}
	}
}

// A process whose /proc does not show its command's processes refuses to run one.
func TestRunWithAForeignProc(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "-pf", "true").CombinedOutput(); err != nil {
		t.Skipf("this user may not create a PID namespace: %s", out)
	}
	f := newFixture(t)
	p := f.prepare(nil, "x", "--", "true")
	unshare, err := exec.LookPath("unshare")
	require.NoError(t, err)
	p.cmd.Path, p.cmd.Args = unshare, append([]string{"unshare", "-pf", p.cmd.Path}, p.cmd.Args[1:]...)
	p.begin()
	require.Equal(t, exitNotRunnable, p.code())
	require.Contains(t, p.errs.String(), "another PID namespace")
}

// The command has the files that its caller has opened for it, at their places, and no others: the same as
// without etcdkit.
func TestRunPassesFilesOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	// open runs a command with files of the caller's, and returns the files that it has.
	open := func(by ...string) (files []string) {
		script := fmt.Sprintf(`exec "$@" 3>%[1]s/three 4>%[1]s/four 9>%[1]s/nine`, dir)
		cmd := exec.Command("sh", append(append([]string{"-c", script, "sh"}, by...),
			"sh", "-c", "echo three >&3; echo four >&4; echo nine >&9; exec ls -l /proc/self/fd")...)
		cmd.Env = append(os.Environ(), asCommand+"=1")
		var errs, out bytes.Buffer
		cmd.Stderr, cmd.Stdout = &errs, &out
		require.NoError(t, cmd.Run(), "%s", &errs)
		for line := range strings.Lines(out.String()) {
			before, target, ok := strings.Cut(strings.TrimSpace(line), " -> ")
			if !ok || strings.HasPrefix(target, "/proc/") { // the directory that ls reads
				continue
			}
			if kind, _, ok := strings.Cut(target, ":["); ok {
				target = kind // each run has pipes of its own
			}
			files = append(files, before[strings.LastIndexByte(before, ' ')+1:]+" "+target)
		}
		slices.Sort(files)
		return files
	}
	alone := open()
	for _, want := range []string{"1 pipe", "2 pipe", "3 " + dir + "/three", "4 " + dir + "/four", "9 " + dir + "/nine"} {
		require.Contains(t, alone, want)
	}
	require.Equal(t, alone, open(self, "run", "--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix, "-N", "test", "x", "--"))
	for _, name := range []string{"three", "four", "nine"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, name+"\n", string(text))
	}
}

// A job that a script has started in the background is not ended by SIGINT, nor is its command.
func TestRunInTheBackground(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	self, err := os.Executable()
	require.NoError(t, err)
	p := &program{t: t, errs: &lockedBuffer{}, cmd: exec.Command("sh", "-c", `trap '' INT; exec "$@"`, "sh", self, "run", "--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix, "-N", "test", "x", "--", "sh", "-c", "kill -INT $$; echo lives; read x; exit 3")}
	p.cmd.Env = append(os.Environ(), asCommand+"=1")
	p.cmd.Stderr = p.errs
	in, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	require.Equal(t, "lives", p.line())
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, in.Close())
	require.Equal(t, 3, p.code())
}

// A stopped command keeps its permit, and continues when it is asked to: the process that renews the
// permit does not stop.
func TestRunOfAStoppedCommand(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(nil, "x", "--", "sh", "-c", "echo $$; while :; do echo tick; sleep 0.05; done")
	pid, err := strconv.Atoi(p.line())
	require.NoError(t, err)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTSTP))
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	}, testkit.Soon, 10*time.Millisecond, "the command is stopped")
	require.Len(t, f.status("x").Holders, 1)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && !strings.Contains(string(stat), ") T ")
	}, testkit.Soon, 10*time.Millisecond, "it continues")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTSTP))
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	}, testkit.Soon, 10*time.Millisecond, "it is stopped again")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 143, p.code(), "a stopped command is continued to end")
}

// A lost permit ends the command, ignored signals or not, and the exit code says so.
func TestRunLosesItsPermit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	exit := filepath.Join(t.TempDir(), "exit")
	p := f.start(nil, "x", "--grace", "100ms", "--exit-file", exit, "--", "sh", "-c", "trap '' TERM; echo started; while :; do sleep 1; done")
	require.Equal(t, "started", p.line())
	_, err := f.etcd.Client().Revoke(testkit.Context(t), f.status("x").Holders[0].Lease)
	require.NoError(t, err)
	require.Equal(t, exitLost, p.code())
	require.Contains(t, p.errs.String(), `"x"`)
	note, err := os.ReadFile(exit)
	require.NoError(t, err)
	require.Contains(t, string(note), `"result":"lost","code":76`)
}

// release of an ID does not take the permit of a command that still works.
func TestReleaseLeavesRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.start(nil, "x", "--id", "a", "--", "sh", "-c", "echo started; while :; do sleep 0.02; done")
	require.Equal(t, "started", p.line())
	for _, args := range [][]string{{}, {"--token", strconv.FormatInt(f.status("x").Holders[0].Token, 10)}} {
		r := f.run(append([]string{"release", "-N", "test", "x", "--id", "a"}, args...)...)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "'etcdkit evict' asks it to end")
		require.Len(t, f.status("x").Holders, 1)
	}
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 143, p.code())
}

// An operator's request ends the command, and the permit is released when it is dead.
func TestRunIsAskedToStop(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := t.TempDir()
	exit := filepath.Join(dir, "exit")
	p := f.start(nil, "x", "--exit-file", exit, "--", "sh", "-c", "trap 'sleep 0.2; touch "+dir+"/cleaned; exit 4' TERM; echo started; while :; do sleep 0.02; done")
	require.Equal(t, "started", p.line())
	r := f.run("evict", "-N", "test", "mutex/x", strconv.FormatInt(f.status("x").Holders[0].Token, 10), "--yes", "--reason", "maintenance")
	require.Zero(t, r.code, r.err)
	require.FileExists(t, filepath.Join(dir, "cleaned"), "it had ended when the permit was released")
	require.Equal(t, 4, p.code())
	require.Contains(t, p.errs.String(), "maintenance")
	note, err := os.ReadFile(exit)
	require.NoError(t, err)
	require.Regexp(t, `"result":"command","code":4,"ended_by":"request","reason":".*maintenance"`, string(note))

	p = f.start(nil, "y", "--exit-file", exit, "--max-hold", "200ms", "--", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.02; done")
	require.Zero(t, p.code())
	require.Contains(t, p.errs.String(), "--max-hold")
	require.Empty(t, f.status("y").Holders)
	note, err = os.ReadFile(exit)
	require.NoError(t, err)
	require.Contains(t, string(note), `"result":"command","code":0,"ended_by":"max-hold"}`)
}

// A wait that is interrupted withdraws the request; one that is not granted exits with 75.
func TestRunWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m, err := concurrency.NewMutex(f.session("web-7"), "x")
	require.NoError(t, err)
	held := f.permit(m.Lock(testkit.Context(t)))
	p := f.start(nil, "x", "-n", "--", "true")
	require.Equal(t, exitNotAcquired, p.code())
	p = f.start(nil, "x", "--wait", "50ms", "--", "true")
	require.Equal(t, exitNotAcquired, p.code())
	exit := filepath.Join(t.TempDir(), "exit")
	p = f.start(nil, "x", "--exit-file", exit, "--", "true")
	p.says("waiting for mutex/x: 1st in the queue, behind web-7 (")
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, 130, p.code())
	note, err := os.ReadFile(exit)
	require.NoError(t, err)
	require.Contains(t, string(note), `"result":"interrupted","code":130`)
	require.Empty(t, f.status("x").Waiters)
	p = f.start(nil, "x", "--", "echo", "done")
	p.says("behind web-7")
	require.NoError(t, held.Release(context.Background()))
	require.Equal(t, "done", p.line())
	require.Zero(t, p.code())
}

// The two processes around a command: when either is killed, or stopped at the deadline, the command and
// all that it has started are killed before the permit is given to another.
func TestRunWhenAProcessFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		guard bool
		by    syscall.Signal
	}{
		"the renewing process is killed":  {false, syscall.SIGKILL},
		"the renewing process is stopped": {false, syscall.SIGSTOP},
		"the guard is killed":             {true, syscall.SIGKILL},
		"the guard is stopped":            {true, syscall.SIGSTOP},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			fifo := filepath.Join(t.TempDir(), "alive") // open as long as any process of the command lives
			require.NoError(t, syscall.Mkfifo(fifo, 0o600))
			alive, err := syscall.Open(fifo, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
			require.NoError(t, err)
			defer func() { _ = syscall.Close(alive) }()
			p := f.start(nil, "x", "--ttl", "6s", "--grace", "100ms", "--", "sh", "-c", "exec 7>"+fifo+"; (setsid sleep 600 &); trap '' TERM; echo $PPID; while :; do sleep 1; done")
			guarding, err := strconv.Atoi(p.line())
			require.NoError(t, err)
			m, err := concurrency.NewMutex(f.session("next"), "x")
			require.NoError(t, err)
			lease := f.status("x").Holders[0].Lease
			pid := p.cmd.Process.Pid
			if c.guard {
				pid = guarding
			}
			require.NoError(t, syscall.Kill(pid, c.by))
			if c.guard && c.by == syscall.SIGSTOP { // what renews the permit works, so it has to end in another way
				_, err := f.etcd.Client().Revoke(testkit.Context(t), lease)
				require.NoError(t, err)
				require.Equal(t, exitLost, p.code())
			}
			f.permit(m.Lock(testkit.Context(t)))
			n, err := syscall.Read(alive, make([]byte, 1))
			require.NoError(t, err, "a process of the command lives")
			require.Zero(t, n)
		})
	}
}
