package cli

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// screen is an interactive shell on a terminal.
type screen struct {
	t      *testing.T
	master *os.File
	shown  *lockedBuffer
}

// terminal starts a shell in which $RUN is `etcdkit run`, $LIMIT `etcdkit limit` and $DOCTOR `etcdkit doctor`.
func (f *fixture) terminal() *screen {
	f.t.Helper()
	self, err := os.Executable()
	require.NoError(f.t, err)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		f.t.Skipf("there is no terminal to test with: %v", err)
	}
	f.t.Cleanup(func() { _ = master.Close() })
	require.NoError(f.t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(f.t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(f.t, err)
	defer func() { _ = tty.Close() }()
	cmd := exec.Command("sh", "-i")
	if path, err := exec.LookPath("bash"); err == nil { // it sends no SIGCONT to a job that runs, as it takes this one for
		cmd = exec.Command(path, "--norc", "-i")
	}
	cmd.Env = append(os.Environ(), asCommand+"=1", "ENV=", "PS1=$ ")
	for _, verb := range []string{"run", "limit", "doctor"} {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%s %s --endpoints %s --prefix %s -N test", strings.ToUpper(verb), self, verb, strings.Join(f.etcd.Endpoints(), ","), f.prefix))
	}

	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(f.t, cmd.Start())
	f.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	s := &screen{t: f.t, master: master, shown: &lockedBuffer{}}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			_, _ = s.shown.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *screen) types(text string) {
	s.t.Helper()
	_, err := s.master.WriteString(text)
	require.NoError(s.t, err)
}

// shows waits for a text and returns what its first group matches.
func (s *screen) shows(pattern string) string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	require.Eventually(s.t, func() bool { return re.MatchString(s.shown.String()) }, testkit.Soon, 10*time.Millisecond, "%s", pattern)
	if m := re.FindStringSubmatch(s.shown.String()); len(m) > 1 {
		return m[1]
	}
	return ""
}

// stopped waits until a process is stopped, or is not.
func (s *screen) stopped(pid string, want bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err == nil && strings.Contains(string(stat), ") T ") == want
	}, testkit.Soon, 10*time.Millisecond, "process %s is stopped: %v; %s", pid, want, s.shown)
}

// A command that reads its terminal in the background is stopped, and continues when a shell brings it to the
// foreground. ^C ends it.
func TestRunOnATerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.terminal()
	s.types("$RUN x -- sh -c 'echo pid=$$; exec cat' &\n")
	pid := s.shows(`pid=(\d+)`)
	s.stopped(pid, true)
	require.Len(t, f.status("x").Holders, 1, "its permit is kept")
	s.types("fg\n")
	s.stopped(pid, false)
	s.types("hel\"\"lo\n")
	s.shows(`hel""lo\r\nhel""lo`)
	s.types("\x03")
	require.Eventually(t, func() bool { return len(f.status("x").Holders) == 0 }, testkit.Soon, 10*time.Millisecond, "%s", s.shown)
	s.types("echo code=$?\n")
	require.Equal(t, "130", s.shows(`code=(\d+)`))
}

// ^Z stops the command, and says so; ^C then ends it.
func TestRunIsStoppedByItsTerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.terminal()
	s.types("$RUN x -- sh -c 'echo pid=$$; exec sleep 600'\n")
	pid := s.shows(`pid=(\d+)`)
	s.types("\x1a")
	s.stopped(pid, true)
	s.shows("the command is stopped, and the permit is kept")
	s.types("\x03")
	s.shows(`\$ $`)
	s.types("echo code=$?\n")
	require.Equal(t, "130", s.shows(`code=(\d+)`))
}

// Under `stty tostop` the messages of a job in the background stop nothing, and --max-hold ends the command.
func TestRunInTheBackgroundOfATerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.terminal()
	s.types("stty tostop; $RUN --max-hold 500ms x -- sleep 600 & \n")
	s.shows(`held for 500ms \(--max-hold\); ending the command`)
	s.types("wait $!; echo code=$?\n")
	require.Equal(t, "143", s.shows(`code=(\d+)`))
}

// A command that is killed leaves the modes of the terminal as they were.
func TestRunRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.terminal()
	s.types("$RUN --grace 100ms --max-hold 500ms x -- sh -c 'trap : TERM; stty raw -echo; while :; do sleep 0.02; done'; stty -a\n")
	s.shows(`(?s)ending the command.*[; ]icanon`)
}

// ^C ends a question, and the terminal shows again what is typed.
func TestQuestionsEndWithASignal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.terminal()
	for n, c := range [][2]string{{"semaphore/x 0", `pauses semaphore/x in all processes\? \[y/N\] `}, {"semaphore/x --user reader", `password of reader: `}} {
		s.types("$LIMIT " + c[0] + "\n")
		s.shows(c[1])
		s.types("\x03")
		s.shows(fmt.Sprintf(`(?s)(ended by a signal: interrupt.*?\$ .*?){%d}$`, n+1)) // it is the shell that reads now
		s.types(fmt.Sprintf("echo code%d=$?\n", n))
		require.Equal(t, "130", s.shows(fmt.Sprintf(`code%d=(\d+)`, n)), "%s", s.shown)
	}
}
