package guard

import (
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// hear has the processes of tests not inherit that signals are ignored, as in the background of a script, or under nohup: their
// commands would ignore them, too.
func hear() {
	for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// The command gets each signal once, whether it was sent to the front process or to the process group.
func TestRelay(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	began := time.Now()
	at := func(d time.Duration) time.Time { return began.Add(time.Second + d) }
	for name, c := range map[string]struct {
		own   time.Duration // when the guard has got the signal, -1h: never
		asked time.Duration // when the front process asks for it
		now   time.Duration
		ok    bool
		group bool
	}{
		"to the front process":                   {-time.Hour, 0, together, true, false},
		"perhaps to the group":                   {-time.Hour, 0, together - ms, false, false},
		"to the group":                           {0, 1 * ms, 1 * ms, true, true},
		"to the group, and the front was faster": {5 * ms, 0, 5 * ms, true, true},
		"to the group, and the front was slow":   {0, 900 * ms, 900 * ms, true, true},
		"to the group before, now to the front":  {0, 1100 * ms, 1200 * ms, true, false},
		"before the command was started":         {-time.Second, -990 * ms, -890 * ms, true, false},
	} {
		r := newRelay(began)
		if c.own != -time.Hour {
			r.got(unix.SIGINT, at(c.own))
		}
		r.ask(unix.SIGINT, at(c.asked))
		s, ok := r.due(at(c.now))
		require.Equal(t, c.ok, ok, name)
		require.Equal(t, c.group, s.group && ok, name)
		if !ok {
			require.Equal(t, at(c.asked+together).Sub(at(c.now)), r.next(at(c.now)), name)
		}
	}
	for name, c := range map[string]struct {
		own    []time.Duration // when the guard has got the signal
		asked  []time.Duration // when the front process asks for it
		passed int             // how many the command gets from the guard
	}{
		"to the group, then to the front":                   {[]time.Duration{0}, []time.Duration{1 * ms, 600 * ms}, 1},
		"to the group twice":                                {[]time.Duration{0, 600 * ms}, []time.Duration{1 * ms, 601 * ms}, 0},
		"to the group twice, and the front was slow":        {[]time.Duration{0, 300 * ms}, []time.Duration{400 * ms, 800 * ms}, 0},
		"to the group twice at once, and the guard got one": {[]time.Duration{0}, []time.Duration{1 * ms, 50 * ms}, 0},
		"to the front, then to the group":                   {[]time.Duration{600 * ms}, []time.Duration{0, 601 * ms}, 1},
	} {
		r, passed := newRelay(began), 0
		for now := time.Duration(0); now <= 2*time.Second; now += ms {
			if slices.Contains(c.own, now) {
				r.got(unix.SIGTERM, at(now))
			}
			if slices.Contains(c.asked, now) {
				r.ask(unix.SIGTERM, at(now))
			}
			if s, ok := r.due(at(now)); ok && !s.group {
				passed++
			}
		}
		require.Equal(t, c.passed, passed, name)
	}
	for got, fresh := range map[time.Duration]bool{0: true, late - ms: true, late: false, -time.Second + together: false} {
		r := newRelay(began)
		r.got(unix.SIGTERM, at(min(got, 0)))
		require.Equal(t, fresh, r.fresh(unix.SIGTERM, at(max(got, 0))), got)
		require.False(t, r.fresh(unix.SIGINT, at(0)))
	}
	r := newRelay(began)
	r.ask(unix.SIGTSTP, at(0))
	r.ask(unix.SIGCONT, at(1))
	_, ok := r.due(at(1))
	require.False(t, ok, "the order is kept")
	s, _ := r.due(at(together))
	require.Equal(t, unix.SIGTSTP, s.signal)
	s, _ = r.due(at(together + 1))
	require.Equal(t, unix.SIGCONT, s.signal)
}

// A signal to the process group reaches the command once, and one that has a group of its own too.
func TestSignalToTheGroup(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	in := append(sh(counting+`=1 exec "$0"`), self)
	for name, args := range map[string][]string{"in it": in, "not in it": append([]string{"setsid"}, in...)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := run{until: time.Hour, group: true, args: args}.start(t)
			f.number()
			for range 3 {
				require.NoError(t, syscall.Kill(-f.cmd.Process.Pid, unix.SIGINT))
				require.Equal(t, unix.SIGINT.String(), f.line())
				require.NoError(t, f.cmd.Process.Signal(unix.SIGUSR1))
				require.Equal(t, unix.SIGUSR1.String(), f.line(), "and not a second SIGINT")
			}
			require.NoError(t, f.cmd.Process.Signal(unix.SIGTERM))
			f.dead(soon)
		})
	}
}

// A658: systemd sends SIGTERM to each process of a service, and `etcdkit cron`, which has got it too, then asks for the end of
// its commands: they get one SIGTERM.
func TestStopAfterASignalToTheGroup(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for range 5 { // on a busy machine the guard may be too late
		f := run{until: time.Hour, grace: soon, group: true, args: append(sh(counting+"="+terminations+` exec "$0"`), self)}.start(t)
		command := f.number()
		require.NoError(t, syscall.Kill(-f.cmd.Process.Pid, unix.SIGTERM))
		require.Equal(t, unix.SIGTERM.String(), f.line())
		f.order("stop")
		next := f.line()
		require.NoError(t, syscall.Kill(command, unix.SIGUSR2))
		f.dead(soon)
		if next == unix.SIGCONT.String() {
			return
		}
	}
	require.Fail(t, "the command gets a second SIGTERM")
}

// A657: SIGTERM of a service's stop has come to processes in the guard's process group and control groups. A process outside one of
// them got none, and is not spared.
func TestSparedProcesses(t *testing.T) {
	t.Parallel()
	p, ok := look(os.Getpid())
	require.True(t, ok)
	group, own := unix.Getpgrp(), cgroup(os.Getpid())
	_, err := os.Stat("/proc/self/cgroup")
	require.Equal(t, err == nil, own != "", "a kernel may be built without control groups")
	require.True(t, p.beside(group, own))
	require.False(t, p.beside(group+1, own), "setsid")
	require.False(t, p.beside(group, own+"0::/another.service\n"), "systemd-run")
}

// A657: SIGTERM comes to the front process and the guard alone, as of killall, and then the end is asked for: the command gets one
// SIGTERM, before SIGKILL.
func TestStopAfterASignalToTheGuard(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	f := run{until: time.Hour, grace: deadline, group: true, args: append(sh(counting+"="+terminations+` exec "$0"`), self)}.start(t)
	p, ok := look(f.number())
	require.True(t, ok)
	require.NoError(t, syscall.Kill(f.cmd.Process.Pid, unix.SIGTERM))
	require.NoError(t, syscall.Kill(p.parent, unix.SIGTERM))
	require.NoError(t, syscall.Kill(f.cmd.Process.Pid, unix.SIGCONT))
	require.Equal(t, unix.SIGCONT.String(), f.line(), "the guard has noted both")
	f.order("stop")
	text, err := io.ReadAll(f.out)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), unix.SIGTERM.String()), "%q", text)
}

// A guard that has been stopped with the process group goes on when the front process does.
func TestTheGroupIsStopped(t *testing.T) {
	t.Parallel()
	f := run{until: time.Hour, group: true, args: sh("echo $PPID; exec sleep 600")}.start(t)
	guard := f.number()
	require.NoError(t, syscall.Kill(-f.cmd.Process.Pid, unix.SIGSTOP))
	state(t, guard, true)
	require.NoError(t, f.cmd.Process.Signal(unix.SIGCONT))
	state(t, guard, false)
	require.NoError(t, f.cmd.Process.Signal(unix.SIGTERM))
	f.dead(soon)
}
