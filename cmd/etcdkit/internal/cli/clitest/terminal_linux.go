package clitest

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

// Screen is an interactive shell on a terminal.
type Screen struct {
	Master *os.File
	Shown  *Buffer
	t      *testing.T
}

// Terminal starts a shell in which $RUN is `etcdkit run`, $LIMIT `etcdkit limit`, $DOCTOR `etcdkit doctor` and
// $ELECTIONS `etcdkit elections`.
func (f *Fixture) Terminal() *Screen {
	f.T.Helper()
	self, err := os.Executable()
	require.NoError(f.T, err)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		f.T.Skipf("there is no terminal to test with: %v", err)
	}
	f.T.Cleanup(func() { _ = master.Close() })
	require.NoError(f.T, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(f.T, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(f.T, err)
	defer func() { _ = tty.Close() }()
	cmd := exec.Command("sh", "-i")
	if path, err := exec.LookPath("bash"); err == nil { // it sends no SIGCONT to a job that runs, as it takes this one for
		cmd = exec.Command(path, "--norc", "-i")
	}
	cmd.Env = append(os.Environ(), AsCommand+"=1", "ENV=", "PS1=$ ")
	for _, verb := range []string{"run", "limit", "doctor", "elections"} {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%s %s --endpoints %s --prefix %s -N test", strings.ToUpper(verb), self, verb, strings.Join(f.Etcd.Endpoints(), ","), f.Prefix))
	}

	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(f.T, cmd.Start())
	f.T.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	s := &Screen{t: f.T, Master: master, Shown: &Buffer{}}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			_, _ = s.Shown.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	return s
}

// Types types a text.
func (s *Screen) Types(text string) {
	s.t.Helper()
	_, err := s.Master.WriteString(text)
	require.NoError(s.t, err)
}

// Shows waits for a text and returns what its first group matches.
func (s *Screen) Shows(pattern string) string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	require.Eventually(s.t, func() bool { return re.MatchString(s.Shown.String()) }, testkit.Soon, 10*time.Millisecond, "%s", pattern)
	if m := re.FindStringSubmatch(s.Shown.String()); len(m) > 1 {
		return m[1]
	}
	return ""
}

// Stopped waits until a process is stopped, or is not.
func (s *Screen) Stopped(pid string, want bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err == nil && strings.Contains(string(stat), ") T ") == want
	}, testkit.Soon, 10*time.Millisecond, "process %s is stopped: %v; %s", pid, want, s.Shown)
}
