package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// beforeADeadline tries something that has to happen before a deadline, each time with twice as much time as before: a busy
// machine may need seconds to start processes. try reports whether it happened.
func beforeADeadline(t *testing.T, try func(until time.Duration) error) {
	t.Helper()
	var err error
	for until := 500 * time.Millisecond; until < soon; until *= 2 {
		if err = try(until); err == nil {
			return
		}
		t.Logf("with a deadline in %v: %v", until, err)
	}
	require.NoError(t, err)
}

// remote is a Remote whose command has written its process ID.
type remote struct {
	*Remote
	pid    int
	events []Event // so far
}

// stubbornRemote starts a command that ignores SIGTERM. It returns an error if the command has not come so far when it ended.
func stubbornRemote(t *testing.T, until time.Duration) (*remote, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	in, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	started, err := StartRemote(Command{Args: []string{"sh", "-c", "trap '' TERM; (sleep 600 &); echo $$ > " + file + "x; mv " + file + "x " + file + "; while :; do sleep 0.05; done"}, Env: os.Environ(), Grace: 100 * time.Millisecond}, time.Now().Add(until), in)
	require.NoError(t, err)
	r := &remote{Remote: started}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case e, open := <-r.Events():
			if !open {
				return nil, fmt.Errorf("it ended before: %+v", r.events)
			}
			r.events = append(r.events, e)
		case <-look.C:
			text, err := os.ReadFile(file)
			if err != nil || len(r.events) == 0 {
				continue
			}
			r.pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
			require.NoError(t, err)
			return r, nil
		}
	}
}

// ends asserts what follows the start of the command, until no process of it is left.
func (r *remote) ends(t *testing.T, want ...Event) {
	t.Helper()
	for e := range r.Events() {
		r.events = append(r.events, e)
	}
	require.NotZero(t, r.events[0].Started)
	require.Equal(t, append(want, Event{Empty: true}), r.events[1:])
	require.ErrorIs(t, syscall.Kill(r.pid, 0), syscall.ESRCH)
}

// One process has several commands, each with a front process of its own. A command ends when it is asked to, at its
// deadline, and when its front process is killed; and the events say how.
func TestRemote(t *testing.T) {
	t.Parallel()
	killed := Event{Exited: &Status{Signal: unix.SIGKILL, CutOff: true, Ended: true}}
	for name, c := range map[string]struct {
		end  func(*Remote)
		want Event
	}{
		"stopped":                     {(*Remote).Stop, killed},
		"the front process is killed": {func(r *Remote) { _ = r.front.Process.Kill() }, Event{Died: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := stubbornRemote(t, time.Hour)
			require.NoError(t, err)
			c.end(r.Remote)
			r.ends(t, c.want)
		})
	}
	t.Run("a deadline that has passed", func(t *testing.T) {
		t.Parallel()
		beforeADeadline(t, func(until time.Duration) error {
			r, err := stubbornRemote(t, until)
			if err == nil {
				r.ends(t, killed)
			}
			return err
		})
	})
}

// A816: a machine that was short of processor time at the deadline, or suspended then, kept the guard from its report for a second:
// its front process said that the guard had died, and how the command has ended was lost. It counts its looks, whatever time passes.
func TestGuardHasTimeToReport(t *testing.T) {
	t.Parallel()
	g := &Guarded{}
	require.False(t, g.failed(0))
	require.False(t, g.failed(1), "a process was left")
	for range int(patience / between) {
		require.False(t, g.failed(0))
	}
	require.True(t, g.failed(0))
}

// A293: the front process is killed, and its guard kills the command later, as on a busy machine: until then the command has not
// ended, and another machine may not run it.
func TestRemoteEndsWithItsGuard(t *testing.T) {
	t.Parallel()
	for {
		r, err := stubbornRemote(t, time.Hour)
		require.NoError(t, err)
		guard := killedBesideAStoppedGuard(t, r)
		resume := func() { require.NoError(t, send(guard, unix.SIGCONT)) }
		t.Cleanup(resume)
		lives := syscall.Kill(r.pid, 0) == nil // or the guard was faster
		if lives {
			select {
			case e := <-r.Events():
				require.Fail(t, "reported while the command lives", "%+v", e)
			case <-time.After(2 * patience):
			}
		}
		resume()
		r.ends(t, Event{Died: true})
		if lives {
			return
		}
	}
}

// killedBesideAStoppedGuard kills the front process, stops the guard and returns it. The end of the front process continues what
// is stopped in its process group, so the guard is stopped again and again.
func killedBesideAStoppedGuard(t *testing.T, r *remote) (guard found) {
	t.Helper()
	front := r.front.Process.Pid
	below, err := descendants(front, nil)
	require.NoError(t, err)
	i := slices.IndexFunc(below, func(p found) bool { return p.parent == front })
	guard = below[i]
	require.NoError(t, send(guard, unix.SIGSTOP))
	require.NoError(t, r.front.Process.Kill())
	for p, lives := look(front); lives && !p.dead(); p, lives = look(front) {
		require.NoError(t, send(guard, unix.SIGSTOP))
	}
	require.NoError(t, send(guard, unix.SIGSTOP))
	return guard
}

// A later deadline counts, and a command that cannot be started is reported.
func TestRemoteTrust(t *testing.T) {
	t.Parallel()
	beforeADeadline(t, func(until time.Duration) error {
		in, out, err := os.Pipe()
		require.NoError(t, err)
		defer func() { _ = in.Close() }()
		deadline := time.Now().Add(until)
		r, err := StartRemote(Command{Args: []string{"sh", "-c", "read x; exit 7"}, Env: os.Environ()}, deadline, in)
		require.NoError(t, err)
		r.Trust(time.Now().Add(time.Hour))
		time.Sleep(time.Until(deadline) + 2*lookEvery) // the former deadline passes
		require.NoError(t, out.Close())
		var all []Event
		for e := range r.Events() {
			all = append(all, e)
		}
		if len(all) != 3 || all[1].Exited == nil || *all[1].Exited != (Status{Code: 7}) {
			return fmt.Errorf("it ended before: %+v", all)
		}
		require.NotZero(t, all[0].Started)
		require.Equal(t, Event{Empty: true}, all[2])
		return nil
	})

	in, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	r, err := StartRemote(Command{Args: []string{"/nosuch"}}, time.Now().Add(time.Hour), in)
	require.NoError(t, err)
	require.Equal(t, 127, (<-r.Events()).Failed.Code)
	require.Equal(t, Event{Empty: true}, <-r.Events())
}
