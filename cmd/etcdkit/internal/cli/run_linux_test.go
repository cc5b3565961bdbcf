package cli_test

import (
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
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
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
		file := filepath.Join(dir, strconv.Itoa(i))
		p := f.Start(nil, append([]string{"x" + strconv.Itoa(i), "--exit-file", file, "--"}, c.args...)...)
		require.Equal(t, c.code, p.Code(), "%v: %s", c.args, p.Errs)
		require.Contains(t, p.Errs.String(), c.errs, c.args)
		if c.errs == "" {
			require.Empty(t, p.Errs.String(), c.args)
		}
		note, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(note), c.result)
	}
	require.Empty(t, testkit.Keys(t, f.Etcd, f.Prefix, ""), "nothing is left in etcd")

	gone := filepath.Join(dir, "gone")
	require.NoError(t, os.Mkdir(gone, 0o700))
	p := f.Start(nil, "gone", "--exit-file", filepath.Join(gone, "exit"), "--", "rm", "-r", gone)
	require.Zero(t, p.Code(), "the exit code is the command's")
	require.Contains(t, p.Errs.String(), `no such file or directory; the result is "command", with the exit code 0`)
}

// TestRunTranscript is the example of the documentation.
func TestRunTranscript(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	m, err := concurrency.NewMutex(f.Session("web-7"), "nightly-report")
	require.NoError(t, err)
	show := func(line string) {
		p := f.Start(nil, clitest.Words(t, line)...)
		out, err := io.ReadAll(p.Out)
		require.NoError(t, err)
		code := p.Code()
		fmt.Fprintf(&f.Script, "$ etcdkit run -N test %s\n%s%s", line, out, p.Errs)
		if code != 0 {
			fmt.Fprintf(&f.Script, "[exit code %d]\n", code)
		}
	}
	show("nightly-report -- sh -c 'echo working on $ETCDKIT_KIND/$ETCDKIT_NAME'")
	show("import --limit 3 -- sh -c 'exit 3'")
	show("nightly-report --max-hold 50ms -- sleep 60")
	held := f.Permit(m.Lock(testkit.Context(t)))
	show("nightly-report --no-wait -- ./report.sh")
	require.NoError(t, held.Release(testkit.Context(t)))
	show("nightly-report -- no-such-program")
	show("import --limit 4 -- ./import.sh")
	show("imports --limit 0 -- ./import.sh")
	f.Golden("run")
}

// A name that is a job's is taken for the lock of its runs: a hint names the other one. It is none if the name is a
// semaphore's, too, or if the permit is one of that.
func TestRunBesideAJob(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ran := func(args ...string) string {
		p := f.Start(nil, append(args, "--", "true")...)
		require.Zero(t, p.Code(), p.Errs)
		return p.Errs.String()
	}
	require.Empty(t, ran("backup"))
	_, err := f.Locker("web-7").Do(testkit.Context(t), "backup", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	require.Contains(t, ran("backup"), "etcdkit run: backup is a job in this namespace: this mutex is another lock")
	require.Contains(t, ran("backup", "--leader"), "this election is another lock")
	require.Empty(t, ran("backups"))
	require.Empty(t, ran("backup", "--limit", "2"), "it stores the limit of a semaphore")
	require.Empty(t, ran("backup"))
}

// Mistakes are found before anything is acquired.
func TestRunUsage(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
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
		r := f.Run(append([]string{"run", "-N", "test"}, args...)...)
		require.Equal(t, exit.Usage, r.Code, "%v: %s", args, r.Err)
		require.Contains(t, r.Err, want)
	}
}

// The command gets standard input, the permit's values after inherited ones, and a nested one its own.
func TestRunEnvironment(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	self, err := os.Executable()
	require.NoError(t, err)
	nested := fmt.Sprintf(`read in; echo "$in $ETCDKIT_KIND $ETCDKIT_NAME $ETCDKIT_NAMESPACE"; env | grep -c ^ETCDKIT_TOKEN=; echo $ETCDKIT_TOKEN; echo $ETCDKIT_GUARD_KEY $ETCDKIT_GUARD_MOD_REVISION
%s=1 %s run --endpoints %s --prefix %s -N test inner --limit 2 -- sh -c 'echo $ETCDKIT_KIND $ETCDKIT_NAME; echo $ETCDKIT_TOKEN'`, clitest.AsCommand, self, strings.Join(f.Etcd.Endpoints(), ","), f.Prefix)
	p := f.Start(strings.NewReader("hello\n"), "outer", "--", "sh", "-c", nested)
	require.Equal(t, "hello mutex outer test", p.Line())
	require.Equal(t, "1", p.Line())
	outer, err := strconv.ParseInt(p.Line(), 10, 64)
	require.NoError(t, err)
	key, mod, _ := strings.Cut(p.Line(), " ")
	require.Contains(t, key, f.Prefix)
	require.Equal(t, strconv.FormatInt(outer, 10), mod)
	require.Equal(t, "semaphore inner", p.Line())
	inner, err := strconv.ParseInt(p.Line(), 10, 64)
	require.NoError(t, err)
	require.Greater(t, inner, outer)
	require.Zero(t, p.Code(), p.Errs.String())
}

// Permits are held until everything that the command has started has ended: background jobs and daemons.
func TestRunWaitsForWhatIsLeft(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	p := f.Start(nil, "x", "--", "sh", "-c", "(setsid cat "+fifo+" &) ; echo started; exit 5")
	require.Equal(t, "started", p.Line())
	p.Says("has exited and left ") // cat, or a shell that is about to be
	require.Len(t, f.Status("x").Holders, 1, "it is not released")
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Equal(t, 5, p.Code())
	require.Empty(t, f.Status("x").Holders)

	p = f.Start(nil, "y", "--end-left", "--grace", "100ms", "--", "sh", "-c", "(setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &) ; exit 5")
	require.Equal(t, 5, p.Code(), "it ends one that ignores SIGTERM")
	require.Empty(t, f.Status("y").Holders)
}

// Signals reach the command, and not the two processes around it.
func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	p := f.Start(nil, "x", "--", "sh", "-c", "for s in INT TERM HUP QUIT USR1 USR2; do trap \"echo $s\" $s; done; trap 'exit 9' WINCH; echo ready; while :; do sleep 0.02; done")
	require.Equal(t, "ready", p.Line())
	for name, s := range map[string]os.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2} {
		require.NoError(t, p.Cmd.Process.Signal(s))
		require.Equal(t, name, p.Line())
	}
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGWINCH))
	require.Equal(t, 9, p.Code())
}

// The signals that end a program withdraw a request that waits.
func TestRunWithdraws(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	m, err := concurrency.NewMutex(f.Session("web-7"), "x")
	require.NoError(t, err)
	f.Permit(m.Lock(testkit.Context(t)))
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		p := f.Start(nil, "x", "--", "true")
		p.Says("behind web-7")
		require.NoError(t, p.Cmd.Process.Signal(s))
		require.Equal(t, 128+int(s), p.Code(), p.Errs)
		require.Empty(t, f.Status("x").Waiters, "%v", s)
		require.NotContains(t, p.Errs.String(), "goroutine")
	}
}

// A limit of 0 takes the stored one. Without one nothing is stored; one of 0 is a pause, and the report says so.
func TestRunWithoutALimit(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	for _, verb := range [][]string{{"run", "-N", "test", "x", "--limit", "0", "--", "true"}, {"hold", "-N", "test", "x", "--limit", "0", "--id", "a", "--for", "10s"}} {
		r := f.Run(verb...)
		require.Equal(t, exit.Failed, r.Code, r.Err)
		require.Contains(t, r.Err, "no limit is stored")
		require.Contains(t, r.Err, "etcdkit limit KIND/NAME N --create")
		require.Empty(t, testkit.Keys(t, f.Etcd, f.Prefix, ""), "nothing is stored")
	}
	sm, err := concurrency.NewSemaphore(f.Session("web-7"), "x", 2, nil)
	require.NoError(t, err)
	require.NoError(t, f.Permit(sm.Acquire(testkit.Context(t))).Release(testkit.Context(t)))
	p := f.Start(nil, "x", "--limit", "0", "--", "echo", "done")
	require.Equal(t, "done", p.Line())
	require.Zero(t, p.Code(), p.Errs)
	require.NoError(t, sm.SetLimit(testkit.Context(t), 0))
	p = f.Start(nil, "x", "--limit", "0", "--", "echo", "done")
	p.Says("waiting for semaphore/x: it is paused by a limit of 0")
	require.NoError(t, sm.SetLimit(testkit.Context(t), 1))
	require.Equal(t, "done", p.Line())
	require.Zero(t, p.Code(), p.Errs)
}

// The reader of its messages may go away: the permit is kept, and the command is not affected.
func TestRunOutlivesItsReader(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	done := filepath.Join(t.TempDir(), "done")
	p := f.Prepare(nil, "x", "--", "sh", "-c", "(setsid sh -c 'sleep 2; touch "+done+"' &); yes | head -n 1; exit 5")
	p.Cmd.Stderr = write
	p.Begin()
	require.NoError(t, write.Close())
	require.Equal(t, "y", p.Line(), "a pipe of the command's own ends its writer as always")
	require.Equal(t, 5, p.Code())
	require.FileExists(t, done, "what was left, and reported to nobody, ran to its end")
}

// A reader of its messages that does not read delays neither the end of the command nor the release.
func TestRunDoesNotWaitForItsReader(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	for name, args := range map[string][]string{
		"x": {"--max-hold", "200ms"},
		"y": {}, // ended by evict
	} {
		read, write, err := os.Pipe()
		require.NoError(t, err)
		defer read.Close()
		fillPipe(t, write)
		p := f.Prepare(nil, append(append([]string{name, "--grace", "100ms"}, args...), "--", "sh", "-c", "trap '' TERM; echo started; while :; do sleep 0.02; done")...)
		p.Cmd.Stderr = write
		p.Begin()
		require.NoError(t, write.Close())
		require.Equal(t, "started", p.Line())
		if len(args) == 0 {
			r := f.Run("evict", "-N", "test", "mutex/"+name, strconv.FormatInt(f.Status(name).Holders[0].Token, 10), "--yes", "--reason", "maintenance")
			require.Zero(t, r.Code, r.Err)
		}
		require.Equal(t, 137, p.Code())
		require.Empty(t, f.Status(name).Holders)
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
				f := clitest.New(t)
				watch := f.Etcd.Client().Watch(testkit.Context(t), f.Prefix, clientv3.WithPrefix())
				p := f.Start(nil, "x", "--", "sh", "-c", "sleep 20; echo survived") // longer than a busy machine delays a signal
				for granted := false; !granted; {
					resp := testkit.Got(t, watch, "the key of the request")
					for _, ev := range resp.Events {
						granted = granted || strings.Contains(string(ev.Kv.Key), "/x/")
					}
				}
				time.Sleep(time.Duration(i) * 4 * time.Millisecond) // the moment is what is tested
				to := p.Cmd.Process.Pid
				if group {
					to = -to
				}
				require.NoError(t, syscall.Kill(to, syscall.SIGTERM))
				require.Equal(t, 143, p.Code(), "%s", p.Errs)
				require.Empty(t, f.Status("x").Holders)
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
	f := clitest.New(t)
	p := f.Prepare(nil, "x", "--", "true")
	unshare, err := exec.LookPath("unshare")
	require.NoError(t, err)
	p.Cmd.Path, p.Cmd.Args = unshare, append([]string{"unshare", "-pf", p.Cmd.Path}, p.Cmd.Args[1:]...)
	p.Begin()
	require.Equal(t, exit.NotRunnable, p.Code())
	require.Contains(t, p.Errs.String(), "another PID namespace")
}

// The command has the files that its caller has opened for it, at their places, and no others: the same as
// without etcdkit.
func TestRunPassesFilesOn(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	// open runs a command with files of the caller's, and returns the files that it has.
	open := func(by ...string) (files []string) {
		script := fmt.Sprintf(`exec "$@" 3>%[1]s/three 4>%[1]s/four 9>%[1]s/nine`, dir)
		cmd := exec.Command("sh", append(append([]string{"-c", script, "sh"}, by...),
			"sh", "-c", "echo three >&3; echo four >&4; echo nine >&9; exec ls -l /proc/self/fd")...)
		cmd.Env = append(os.Environ(), clitest.AsCommand+"=1")
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
	require.Equal(t, alone, open(self, "run", "--endpoints", strings.Join(f.Etcd.Endpoints(), ","), "--prefix", f.Prefix, "-N", "test", "x", "--"))
	for _, name := range []string{"three", "four", "nine"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, name+"\n", string(text))
	}
}

// A job that a script has started in the background is not ended by SIGINT, nor is its command.
func TestRunInTheBackground(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	p := f.Prepare(nil, "x", "--", "sh", "-c", "kill -INT $$; echo lives; read x; exit 3")
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	p.Cmd.Path, p.Cmd.Args = sh, append([]string{"sh", "-c", `trap '' INT; exec "$@"`, "sh"}, p.Cmd.Args...)
	in, err := p.Cmd.StdinPipe()
	require.NoError(t, err)
	p.Begin()
	require.Equal(t, "lives", p.Line())
	require.NoError(t, p.Cmd.Process.Signal(os.Interrupt))
	require.NoError(t, in.Close())
	require.Equal(t, 3, p.Code())
}

// A stopped command keeps its permit, and continues when it is asked to: the process that renews the
// permit does not stop.
func TestRunOfAStoppedCommand(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	p := f.Start(nil, "x", "--", "sh", "-c", "echo $$; while :; do echo tick; sleep 0.05; done")
	pid, err := strconv.Atoi(p.Line())
	require.NoError(t, err)
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTSTP))
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	}, testkit.Soon, 10*time.Millisecond, "the command is stopped")
	require.Len(t, f.Status("x").Holders, 1)
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGCONT))
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && !strings.Contains(string(stat), ") T ")
	}, testkit.Soon, 10*time.Millisecond, "it continues")
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTSTP))
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	}, testkit.Soon, 10*time.Millisecond, "it is stopped again")
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 143, p.Code(), "a stopped command is continued to end")
}

// A lost permit ends the command, ignored signals or not, and the exit code says so.
func TestRunLosesItsPermit(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	file := filepath.Join(t.TempDir(), "exit")
	p := f.Start(nil, "x", "--grace", "100ms", "--exit-file", file, "--", "sh", "-c", "trap '' TERM; echo started; while :; do sleep 1; done")
	require.Equal(t, "started", p.Line())
	_, err := f.Etcd.Client().Revoke(testkit.Context(t), f.Status("x").Holders[0].Lease)
	require.NoError(t, err)
	require.Equal(t, exit.Lost, p.Code())
	require.Contains(t, p.Errs.String(), `"x"`)
	note, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(note), `"result":"lost","code":76`)
}

// release of an ID does not take the permit of a command that still works.
func TestReleaseLeavesRun(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	p := f.Start(nil, "x", "--id", "a", "--", "sh", "-c", "echo started; while :; do sleep 0.02; done")
	require.Equal(t, "started", p.Line())
	for _, args := range [][]string{{}, {"--token", strconv.FormatInt(f.Status("x").Holders[0].Token, 10)}} {
		r := f.Run(append([]string{"release", "-N", "test", "x", "--id", "a"}, args...)...)
		require.Equal(t, exit.Failed, r.Code)
		require.Contains(t, r.Err, "'etcdkit evict' asks it to end")
		require.Len(t, f.Status("x").Holders, 1)
	}
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 143, p.Code())
}

// An operator's request ends the command, and the permit is released when it is dead.
func TestRunIsAskedToStop(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "exit")
	p := f.Start(nil, "x", "--exit-file", file, "--", "sh", "-c", "trap 'sleep 0.2; touch "+dir+"/cleaned; exit 4' TERM; echo started; while :; do sleep 0.02; done")
	require.Equal(t, "started", p.Line())
	r := f.Run("evict", "-N", "test", "mutex/x", strconv.FormatInt(f.Status("x").Holders[0].Token, 10), "--yes", "--reason", "maintenance")
	require.Zero(t, r.Code, r.Err)
	require.FileExists(t, filepath.Join(dir, "cleaned"), "it had ended when the permit was released")
	require.Equal(t, 4, p.Code())
	require.Contains(t, p.Errs.String(), "maintenance")
	note, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Regexp(t, `"result":"command","code":4,"ended_by":"request","reason":".*maintenance"`, string(note))

	p = f.Start(nil, "y", "--exit-file", file, "--max-hold", "200ms", "--", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.02; done")
	require.Zero(t, p.Code())
	require.Contains(t, p.Errs.String(), "--max-hold")
	require.Empty(t, f.Status("y").Holders)
	note, err = os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(note), `"result":"command","code":0,"ended_by":"max-hold"}`)
}

// A wait that is interrupted withdraws the request; one that is not granted exits with 75.
func TestRunWaits(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	m, err := concurrency.NewMutex(f.Session("web-7"), "x")
	require.NoError(t, err)
	held := f.Permit(m.Lock(testkit.Context(t)))
	p := f.Start(nil, "x", "-n", "--", "true")
	require.Equal(t, exit.NotAcquired, p.Code())
	p = f.Start(nil, "x", "--wait", "1s", "--", "true") // long enough for etcd to answer: otherwise it is unavailable
	require.Equal(t, exit.NotAcquired, p.Code())
	file := filepath.Join(t.TempDir(), "exit")
	p = f.Start(nil, "x", "--exit-file", file, "--", "true")
	p.Says("waiting for mutex/x: 1st in the queue, behind web-7 (")
	require.NoError(t, p.Cmd.Process.Signal(os.Interrupt))
	require.Equal(t, 130, p.Code())
	note, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(note), `"result":"interrupted","code":130`)
	require.Empty(t, f.Status("x").Waiters)
	p = f.Start(nil, "x", "--", "echo", "done")
	p.Says("behind web-7")
	require.NoError(t, held.Release(context.Background()))
	require.Equal(t, "done", p.Line())
	require.Zero(t, p.Code())
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
			f := clitest.New(t)
			fifo := filepath.Join(t.TempDir(), "alive") // open as long as any process of the command lives
			require.NoError(t, syscall.Mkfifo(fifo, 0o600))
			alive, err := syscall.Open(fifo, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
			require.NoError(t, err)
			defer func() { _ = syscall.Close(alive) }()
			p := f.Start(nil, "x", "--ttl", "6s", "--grace", "100ms", "--", "sh", "-c", "exec 7>"+fifo+"; (setsid sleep 600 &); trap '' TERM; echo $PPID; while :; do sleep 1; done")
			guarding, err := strconv.Atoi(p.Line())
			require.NoError(t, err)
			m, err := concurrency.NewMutex(f.Session("next"), "x")
			require.NoError(t, err)
			lease := f.Status("x").Holders[0].Lease
			pid := p.Cmd.Process.Pid
			if c.guard {
				pid = guarding
			}
			require.NoError(t, syscall.Kill(pid, c.by))
			if c.guard && c.by == syscall.SIGSTOP { // what renews the permit works, so it has to end in another way
				_, err := f.Etcd.Client().Revoke(testkit.Context(t), lease)
				require.NoError(t, err)
				require.Equal(t, exit.Lost, p.Code())
			}
			f.Permit(m.Lock(testkit.Context(t)))
			n, err := syscall.Read(alive, make([]byte, 1))
			require.NoError(t, err, "a process of the command lives")
			require.Zero(t, n)
		})
	}
}

// The reader of standard output, which is the command's, may be gone before the permit is granted: the command runs. A
// permit of hold, which exists for what is printed of it, is not acquired then.
func TestRunWaitsWithoutAReader(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	without := func(verb string, args ...string) *clitest.Program {
		read, write, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, read.Close())
		p := f.Prepare(nil, args...)
		p.Cmd.Args[1], p.Cmd.Stdout = verb, write
		p.Begin()
		require.NoError(t, write.Close())
		return p
	}
	done := filepath.Join(t.TempDir(), "done")
	p := without("run", "free", "--", "touch", done)
	require.Zero(t, p.Code(), p.Errs)
	require.FileExists(t, done)

	m, err := concurrency.NewMutex(f.Session("web-7"), "x")
	require.NoError(t, err)
	held := f.Permit(m.Lock(testkit.Context(t)))
	waited := filepath.Join(t.TempDir(), "waited")
	p = without("run", "x", "--", "touch", waited)
	p.Says("behind web-7")
	hold := without("hold", "x", "--id", "a", "--for", "30m")
	require.Equal(t, exit.NoReader, hold.Code(), hold.Errs)
	require.Empty(t, hold.Errs.String())
	require.NoError(t, held.Release(testkit.Context(t)))
	require.Zero(t, p.Code(), p.Errs)
	require.FileExists(t, waited)
	require.Empty(t, f.Status("x").Holders)
}

// What serves goes on when the reader of its messages is gone.
func TestExportOutlivesItsReader(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	p := f.Prepare(nil, "--listen", "127.0.0.1:0")
	p.Cmd.Args[1], p.Cmd.Stderr = "export", write // which would say that the namespace is empty
	p.Begin()
	require.NoError(t, write.Close())
	require.Contains(t, p.Line(), "metrics at http://")
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.Code())
}

// What serves until a signal ends it exits with 0 by one, also before etcd has answered.
func TestServingEndsBeforeEtcdAnswers(t *testing.T) {
	t.Parallel()
	crontab := filepath.Join(t.TempDir(), "crontab")
	require.NoError(t, os.WriteFile(crontab, []byte("CRON_TZ=UTC\n# job: x\n0 0 1 1 *  true\n"), 0o600))
	for verb, more := range map[string][]string{"console": {}, "export": {"--listen", "127.0.0.1:0"}, "cron": {crontab}} {
		ctx, cancel := context.WithCancel(testkit.Context(t))
		cancel()
		f := clitest.New(t)
		r := f.RunWith(ctx, append([]string{verb, "-N", "test"}, more...)...)
		require.Zero(t, r.Code, "%s: %s", verb, r.Err)
	}
}
