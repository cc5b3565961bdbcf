package cron

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A660, A661: a call finds a run that another process has claimed. One of this machine that lives is no reason to wait for its
// end, and none to exit with 0. A failure is the result of the calls that were on standby for the run, and not of later ones.
func TestCallBesideARun(t *testing.T) {
	t.Parallel()
	const here, other = "", "etcdkit jobs run by other, process 1"
	failed := errors.New("exit code 3")
	for name, c := range map[string]struct {
		owner string
		takes time.Duration
		fails error
		after time.Duration // when the call begins
		lasts time.Duration // the call, at most
		want  string        // or "": it exits with 0
	}{
		"of this machine, and goes on":  {here, time.Hour, nil, 5 * time.Minute, 37 * time.Second, "this machine runs tick"},
		"of this machine, and ends":     {here, 5*time.Minute + 10*time.Second, nil, 5 * time.Minute, 12 * time.Second, "this machine has run tick"},
		"of this machine, at its begin": {here, time.Hour, nil, 10 * time.Second, time.Hour, ""},
		"of another machine":            {other, time.Hour, nil, 5 * time.Minute, time.Hour, ""},
		"of another machine, and fails": {other, time.Minute, failed, 10 * time.Second, time.Minute, ""},
		"that has failed before":        {other, time.Minute, failed, 2 * time.Minute, time.Second, "has failed, and is not repeated: exit code 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := etcdfake.New(t)
				now := func() time.Time { return time.Now().UTC() }
				if c.owner == here {
					c.owner = verb.Owner("jobs run")
				}
				first, endFirst := host(t, server, c.owner, now)
				defer endFirst()
				this, end := host(t, server, "etcdkit jobs run by this, process 1", now)
				defer end()
				v := scheduledRun{now: now, every: 24 * time.Hour}
				v.Call = &verb.Call{Std: verb.Streams{Out: io.Discard, Err: io.Discard}, Etcd: verb.Connection{Timeout: time.Minute}}
				v.Kind, v.Name, v.Verb = "job", "backup", "jobs run"
				v.work = func(context.Context, *schedlock.Run, []string, <-chan struct{}) error { panic("it runs the command") }
				done := make(chan error, 1)
				go func() {
					_, err := first.Do(t.Context(), "backup", func(context.Context, *schedlock.Run) error { time.Sleep(c.takes); return c.fails }, v.options(now(), 0)...)
					done <- err
				}()
				time.Sleep(c.after)
				begun := time.Now()
				err := v.attend(t.Context(), this, nil)
				require.LessOrEqual(t, time.Since(begun), c.lasts)
				if c.want == "" {
					require.NoError(t, err)
				} else {
					require.Equal(t, exit.NotAcquired, exit.CodeOf(err))
					require.ErrorContains(t, err, c.want)
				}
				require.ErrorIs(t, <-done, c.fails)
			})
		})
	}
}
