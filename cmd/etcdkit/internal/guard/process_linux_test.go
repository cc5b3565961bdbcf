package guard

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// asFront has the test binary be a front process.
const asFront = "ETCDKIT_TEST_FRONT"

// counting has the test binary write each SIGINT and SIGUSR1, until SIGTERM, or each SIGTERM and SIGCONT, until SIGUSR2. A
// shell can lose one that comes between two of its commands.
const (
	counting     = "ETCDKIT_TEST_COUNTING"
	terminations = "terminations"
)

func count() {
	last, counted := unix.SIGTERM, []os.Signal{unix.SIGINT, unix.SIGUSR1}
	if os.Getenv(counting) == terminations {
		last, counted = unix.SIGUSR2, []os.Signal{unix.SIGTERM, unix.SIGCONT}
	}
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, append(counted, last)...)
	time.Sleep(5 * together) // a signal soon after the start of a command may reach it twice
	fmt.Println(os.Getpid())
	for s := <-signals; s != last; s = <-signals {
		fmt.Println(s)
	}
}

// headless has the test binary be a process whose main thread has ended, until SIGTERM.
const headless = "ETCDKIT_TEST_HEADLESS"

func init() {
	if os.Getenv(headless) != "" {
		runtime.LockOSThread() // the main goroutine stays on the main thread
	}
}

// soon bounds what happens without a deadline; an hour is a deadline that no test reaches. deadline is one that is reached, and
// not before a busy machine has started the processes.
const (
	soon     = time.Minute
	deadline = 10 * time.Second
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == Argument:
		os.Exit(Main(os.Args[2:]))
	case len(os.Args) > 1 && os.Args[1] == FrontArgument:
		os.Exit(Front(os.Args[2:]))
	case os.Getenv(asFront) != "":
		_ = os.Unsetenv(asFront)
		os.Exit(frontMain())
	case os.Getenv(counting) != "":
		count()
		os.Exit(0)
	case os.Getenv(headless) != "":
		terms := make(chan os.Signal, 1)
		signal.Notify(terms, syscall.SIGTERM)
		go func() {
			for p, _ := look(os.Getpid()); p.state != 'Z'; p, _ = look(os.Getpid()) {
				time.Sleep(time.Millisecond)
			}
			fmt.Println("headless")
			<-terms
			os.Exit(7)
		}()
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	hear()
	os.Exit(m.Run())
}

// frontMain runs a command as its arguments say, takes "trust DURATION" and "stop" from file 3, and writes
// events to file 4. It stops the command when file 3 is closed.
func frontMain() int {
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	until := flag.Int64("until", 0, "")
	grace := flag.Duration("grace", 0, "")
	endLeft := flag.Bool("end-left", false, "")
	flag.Parse()
	g, err := Start(context.Background(), Command{Args: flag.Args(), Env: os.Environ(), Grace: *grace, EndLeft: *endLeft}, time.Unix(0, *until), func() error { return nil })
	if err != nil {
		panic(err)
	}
	go func() {
		for lines := bufio.NewScanner(os.NewFile(3, "control")); lines.Scan(); {
			if d, ok := strings.CutPrefix(lines.Text(), "trust "); ok {
				length, _ := time.ParseDuration(d)
				g.Trust(time.Now().Add(length))
			} else {
				g.Stop()
			}
		}
		g.Stop()
	}()
	events := json.NewEncoder(os.NewFile(4, "events"))
	for e := range g.Events() {
		_ = events.Encode(e)
	}
	return 0
}

// run is what a test runs.
type run struct {
	until   time.Duration // from now
	grace   time.Duration
	endLeft bool
	stdin   io.Reader
	wrap    []string // a program that executes the front process
	group   bool     // with a process group of its own
	args    []string
}

// sh runs a script. Every process of it holds the file by which the test sees that one lives.
func sh(script string) []string { return []string{"sh", "-c", `exec 7>"$ALIVE"; ` + script} }

// front is a front process.
type front struct {
	t        *testing.T
	cmd      *exec.Cmd
	deadline time.Time
	control  *os.File
	events   *json.Decoder
	out      *bufio.Reader
	alive    *os.File
}

func (r run) start(t *testing.T) *front {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "alive")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	f := &front{t: t, deadline: time.Now().Add(r.until)}
	pipe := func() (in, out *os.File) {
		in, out, err := os.Pipe()
		require.NoError(t, err)
		t.Cleanup(func() { _, _ = in.Close(), out.Close() })
		return in, out
	}
	var err error
	f.alive, err = os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	orders, control := pipe()
	reports, events := pipe()
	out, theirs := pipe()
	self, err := os.Executable()
	require.NoError(t, err)
	args := append(r.wrap, self, "-until", strconv.FormatInt(f.deadline.UnixNano(), 10), "-grace", r.grace.String(), "-end-left="+strconv.FormatBool(r.endLeft), "--")
	args = append(args, r.args...)
	f.cmd = exec.Command(args[0], args[1:]...)
	f.cmd.Env = append(os.Environ(), asFront+"=1", "ALIVE="+fifo)
	f.cmd.Stdin, f.cmd.Stdout, f.cmd.Stderr = r.stdin, theirs, os.Stderr
	f.cmd.ExtraFiles = []*os.File{orders, events}
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: r.group}
	require.NoError(t, f.cmd.Start())
	_, _, _ = orders.Close(), events.Close(), theirs.Close()
	for _, file := range []*os.File{reports, out} {
		require.NoError(t, file.SetReadDeadline(time.Now().Add(2*soon)))
	}
	f.control, f.events, f.out = control, json.NewDecoder(reports), bufio.NewReader(out)
	t.Cleanup(func() {
		below, _ := descendants(f.cmd.Process.Pid, nil)
		for _, p := range below {
			_ = send(p, unix.SIGCONT)
		}
		_ = f.cmd.Process.Signal(syscall.SIGCONT)
		_ = f.control.Close() // it stops the command
		f.dead(soon)
		_, _ = f.cmd.Process.Kill(), f.alive.Close()
		_ = f.cmd.Wait()
	})
	return f
}

// line returns the next line that the command has written.
func (f *front) line() string {
	f.t.Helper()
	s, err := f.out.ReadString('\n')
	require.NoError(f.t, err)
	return strings.TrimSpace(s)
}

func (f *front) number() int {
	f.t.Helper()
	n, err := strconv.Atoi(f.line())
	require.NoError(f.t, err)
	return n
}

// rest returns the events until Empty.
func (f *front) rest() (all []Event) {
	f.t.Helper()
	for {
		var e Event
		require.NoError(f.t, f.events.Decode(&e), "%+v", all)
		if all = append(all, e); e.Empty {
			return all
		}
	}
}

// dead waits until no process of the command lives, and returns when that was.
func (f *front) dead(within time.Duration) time.Time {
	f.t.Helper()
	_ = f.alive.SetReadDeadline(time.Now().Add(within))
	_, err := io.Copy(io.Discard, f.alive)
	require.NoError(f.t, err, "a process of the command lives")
	return time.Now()
}

func (f *front) order(format string, args ...any) {
	f.t.Helper()
	_, err := fmt.Fprintf(f.control, format+"\n", args...)
	require.NoError(f.t, err)
}

// stubborn is a command that ignores SIGTERM, with a job in the background, a daemon with a session of its
// own and one that forks twice. It writes the ID of its parent, the guard.
const stubborn = `trap '' TERM
sleep 600 &
setsid sh -c 'sleep 600 & sleep 600' &
(setsid sh -c '(sleep 600 &)' &)
echo $PPID; while :; do sleep 600; done`

// Whichever process fails, all that the command has started is dead: at once after a SIGKILL, at the
// deadline after a SIGSTOP.
func TestAProcessFails(t *testing.T) {
	t.Parallel()
	const grace = 100 * time.Millisecond
	for name, c := range map[string]struct {
		guard bool
		by    syscall.Signal
		until time.Duration
	}{
		"the front process is killed":  {false, syscall.SIGKILL, time.Hour},
		"the front process is stopped": {false, syscall.SIGSTOP, deadline},
		"the guard is killed":          {true, syscall.SIGKILL, time.Hour},
		"the guard is stopped":         {true, syscall.SIGSTOP, deadline},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := run{until: c.until, grace: grace, args: sh(stubborn)}.start(t)
			guard := f.number()
			pid := f.cmd.Process.Pid
			if c.guard {
				pid = guard
			}
			sent := time.Now()
			require.NoError(t, syscall.Kill(pid, c.by))
			if c.by == syscall.SIGKILL {
				t.Logf("dead %v after SIGKILL", f.dead(soon).Sub(sent))
			} else {
				late := f.dead(soon).Sub(f.deadline.Add(grace))
				t.Logf("dead %v after the deadline and the grace", late)
				require.Less(t, late, deadline)
				require.Greater(t, late, -grace, "trust had not ended")
			}
			if c.guard {
				all := f.rest()
				require.True(t, all[len(all)-2].Died, "%+v", all)
			}
		})
	}
}

// What the front process had started before, as a shell that executes it in its own place does, is not the command's:
// it lives on, also if the front process has to kill.
func TestChildrenFromBefore(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]syscall.Signal{"the guard is killed": syscall.SIGKILL, "the guard is stopped": syscall.SIGSTOP, "the command ends": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := []string{"sh", "-c", `sh -c 'sleep 600 & wait' & echo $!; exec "$@"`, "sh"}
			args := sh(stubborn)
			if by == 0 {
				args = sh("echo $PPID")
			}
			f := run{until: deadline, wrap: before, args: args}.start(t)
			other := f.number()
			t.Cleanup(func() {
				below, _ := descendants(other, nil)
				require.Len(t, below, 1)
				require.NoError(t, sendEach(below, unix.SIGKILL))
				_ = syscall.Kill(other, syscall.SIGKILL)
			})
			if guard := f.number(); by != 0 {
				require.NoError(t, syscall.Kill(guard, by))
			}
			f.rest()
			f.dead(soon)
			p, lives := look(other)
			require.True(t, lives && !p.dead(), "%+v", p)
		})
	}
}

// Every process is ended when the caller asks for it, or when the deadline passes that the caller has
// moved on; the caller hears how the command has ended, and that none is left.
func TestEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		until time.Duration
		order string
	}{
		"stop":             {time.Hour, "stop"},
		"a later deadline": {deadline, "trust 11s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := run{until: c.until, grace: 100 * time.Millisecond, args: sh(stubborn)}.start(t)
			f.number()
			sent := time.Now()
			f.order("%s", c.order)
			ended := f.dead(soon)
			if c.order != "stop" {
				require.Greater(t, ended.Sub(sent), 11*time.Second)
			}
			all := f.rest()
			require.Len(t, all, 3, "%+v", all)
			require.Equal(t, &Status{Signal: syscall.SIGKILL, CutOff: true, Ended: true}, all[1].Exited)
		})
	}
}

// A command that forks without end, each process exiting at once, is ended too.
func TestEndOfAForkStorm(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"a chain": `f() { [ $1 -gt 0 ] && f $(($1-1)) & }; f 200000; echo $PPID; sleep 600`,
		"a tree":  `f() { while :; do sleep 600 & sleep 0.01; done; }; f & f & echo $PPID; sleep 600`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := run{until: time.Hour, args: sh(script)}.start(t)
			f.number()
			sent := time.Now()
			f.order("stop")
			t.Logf("dead after %v", f.dead(soon).Sub(sent))
			f.rest()
		})
	}
}

func TestHowACommandEnds(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("no program"), 0o600))
	for name, c := range map[string]struct {
		args   []string
		exited *Status
		failed int
	}{
		"success":          {args: sh("exit 0"), exited: &Status{}},
		"an exit code":     {args: sh("exit 75"), exited: &Status{Code: 75}},
		"a signal":         {args: sh("kill -USR1 $$"), exited: &Status{Signal: syscall.SIGUSR1}},
		"not found":        {args: []string{"etcdkit-no-such-program"}, failed: 127},
		"no such file":     {args: []string{"/etcdkit/no/such/program"}, failed: 127},
		"not executable":   {args: []string{plain}, failed: 126},
		"a directory":      {args: []string{"/"}, failed: 126},
		"bytes of no text": {args: append(sh(`[ "$1" = "$(printf '\377\376')" ]`), "sh", "\xff\xfe"), exited: &Status{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := run{until: time.Hour, args: c.args}.start(t)
			all := f.rest()
			if c.failed != 0 {
				require.Len(t, all, 2, "%+v", all)
				require.Equal(t, c.failed, all[0].Failed.Code, all[0].Failed.Text)
				return
			}
			require.Len(t, all, 3, "%+v", all)
			require.NotZero(t, all[0].Started)
			require.Equal(t, c.exited, all[1].Exited)
		})
	}
}

func TestACommandIsNotStartedAfterTheDeadline(t *testing.T) {
	t.Parallel()
	all := run{until: -time.Second, args: sh("echo started")}.start(t).rest()
	require.Nil(t, all[0].Exited, "%+v", all)
	require.Zero(t, all[0].Started)
}

func TestStdinPasses(t *testing.T) {
	t.Parallel()
	f := run{until: time.Hour, stdin: strings.NewReader("hello\n"), args: sh("read x; echo $x")}.start(t)
	require.Equal(t, "hello", f.line())
	require.Equal(t, &Status{}, f.rest()[1].Exited)
}

// A process whose main thread has ended lives as long as its other threads: it is asked to end as any other is.
func TestWithoutItsMainThread(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	f := run{until: time.Hour, grace: soon, args: append(sh(headless+`=1 exec "$0"`), self)}.start(t)
	require.Equal(t, "headless", f.line())
	f.order("stop")
	require.Equal(t, &Status{Code: 7, CutOff: true, Ended: true}, f.rest()[1].Exited)
}

// What a command leaves behind is reported, and no end is reported before it has ended.
func TestLeft(t *testing.T) {
	t.Parallel()
	const leaves = `(setsid sh -c 'trap "" TERM; while :; do sleep 600; done' &); exit 5`
	t.Run("kept", func(t *testing.T) {
		t.Parallel()
		f := run{until: time.Hour, args: sh(leaves)}.start(t)
		var e Event
		for e.Left == nil {
			require.NoError(t, f.events.Decode(&e))
			require.False(t, e.Empty)
		}
		require.Contains(t, []string{"sh", "sleep", "setsid"}, e.Left[0].Name)
		f.order("stop")
		f.dead(soon)
		require.True(t, f.rest()[0].Empty)
	})
	t.Run("ended", func(t *testing.T) {
		t.Parallel()
		f := run{until: time.Hour, grace: 50 * time.Millisecond, endLeft: true, args: sh(leaves)}.start(t)
		all := f.rest()
		require.Equal(t, &Status{Code: 5}, all[1].Exited)
		f.dead(soon)
	})
	t.Run("and the guard is stopped", func(t *testing.T) {
		t.Parallel()
		f := run{until: time.Hour, args: sh("echo $PPID; " + leaves)}.start(t)
		guard := f.number()
		var e Event
		for e.Exited == nil {
			require.NoError(t, f.events.Decode(&e))
		}
		require.NoError(t, syscall.Kill(guard, syscall.SIGSTOP))
		f.order("stop")
		f.dead(soon)
		for _, e := range f.rest() {
			require.False(t, e.Died, "the exit code of the command was reported, and counts")
		}
	})
}

// state waits until a process has a state, as T: stopped.
func state(t *testing.T, pid int, stoppedNow bool) {
	t.Helper()
	require.Eventually(t, func() bool { return stopped(pid) == stoppedNow }, soon, 5*time.Millisecond)
}

// SIGCONT continues all that a terminal has stopped, and none of it after the deadline.
func TestContinue(t *testing.T) {
	t.Parallel()
	f := run{until: time.Hour, args: sh("sleep 600 & echo $!; echo $$; wait")}.start(t)
	job, command := f.number(), f.number()
	for _, pid := range []int{job, command} {
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		state(t, pid, true)
	}
	require.NoError(t, f.cmd.Process.Signal(syscall.SIGCONT))
	state(t, job, false)
	state(t, command, false)
}

// A signal to end continues what a terminal has stopped, also if the command itself is not stopped.
func TestEndContinues(t *testing.T) {
	t.Parallel()
	f := run{until: time.Hour, args: sh("trap '' INT; sleep 600 & echo $!; wait")}.start(t)
	job := f.number()
	require.NoError(t, syscall.Kill(job, syscall.SIGSTOP))
	state(t, job, true)
	require.NoError(t, f.cmd.Process.Signal(syscall.SIGINT))
	state(t, job, false)
}

// A signal that is ignored, as under nohup, is ignored by the command.
func TestIgnoredSignals(t *testing.T) {
	t.Parallel()
	f := run{until: time.Hour, wrap: []string{"sh", "-c", `trap '' HUP INT TSTP; exec "$@"`, "sh"}, args: sh("kill -HUP $$; kill -INT $$; kill -TSTP $$; echo lives; exit 3")}.start(t)
	require.Equal(t, "lives", f.line())
	require.Equal(t, &Status{Code: 3}, f.rest()[1].Exited)
}

// K30: with a low ulimit -u a message says so before Go's runtime ends with a dump. It does not bind root.
func TestRoomForAGuard(t *testing.T) {
	t.Parallel()
	require.NoError(t, room(1000, fewest))
	require.NoError(t, room(1000, unix.RLIM_INFINITY))
	require.NoError(t, room(0, 1))
	require.ErrorContains(t, room(1000, fewest-1), "ulimit -u permits 19")
}
