package guard

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// One process has several commands, each with a front process of its own. A command ends when it is asked to, at its
// deadline, and when its front process is killed; and the events say how.
func TestRemote(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		until time.Duration
		end   func(*Remote)
		want  Event
	}{
		"stopped":                     {time.Hour, (*Remote).Stop, Event{Exited: &Status{Signal: unix.SIGKILL}}},
		"a deadline that has passed":  {500 * time.Millisecond, func(*Remote) {}, Event{Exited: &Status{Signal: unix.SIGKILL}}},
		"the front process is killed": {time.Hour, func(r *Remote) { _ = r.front.Process.Kill() }, Event{Died: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pid")
			in, err := os.Open(os.DevNull)
			require.NoError(t, err)
			r, err := StartRemote(Command{Args: []string{"sh", "-c", "trap '' TERM; (sleep 600 &); echo $$ > " + file + "x; mv " + file + "x " + file + "; while :; do sleep 0.05; done"}, Env: os.Environ(), Grace: 100 * time.Millisecond}, time.Now().Add(c.until), in)
			require.NoError(t, err)
			require.NoError(t, in.Close())
			require.NotZero(t, (<-r.Events()).Started)
			require.Eventually(t, func() bool { _, err := os.Stat(file); return err == nil }, soon, 5*time.Millisecond)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			require.NoError(t, err)
			c.end(r)
			var last []Event
			for e := range r.Events() {
				last = append(last, e)
			}
			require.Equal(t, []Event{c.want, {Empty: true}}, last)
			require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
		})
	}
}

// A later deadline counts, and a command that cannot be started is reported.
func TestRemoteTrust(t *testing.T) {
	t.Parallel()
	in, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	r, err := StartRemote(Command{Args: []string{"sh", "-c", "sleep 1; exit 7"}, Env: os.Environ()}, time.Now().Add(500*time.Millisecond), in)
	require.NoError(t, err)
	r.Trust(time.Now().Add(time.Hour))
	require.NotZero(t, (<-r.Events()).Started)
	require.Equal(t, Event{Exited: &Status{Code: 7}}, <-r.Events())
	require.Equal(t, Event{Empty: true}, <-r.Events())

	r, err = StartRemote(Command{Args: []string{"/nosuch"}}, time.Now().Add(time.Hour), in)
	require.NoError(t, err)
	require.Equal(t, 127, (<-r.Events()).Failed.Code)
	require.Equal(t, Event{Empty: true}, <-r.Events())
}
