package cron

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
)

// standingBy is a call of `jobs run` for a job of each day, which waits for etcd for ten minutes.
func standingBy(work func()) *scheduledRun {
	v := &scheduledRun{now: func() time.Time { return time.Now().UTC() }, every: 24 * time.Hour, retries: 1, patient: 10 * time.Minute}
	v.Call = &verb.Call{Std: verb.Streams{Out: io.Discard, Err: io.Discard}, Etcd: verb.Connection{Timeout: 5 * time.Second}}
	v.Kind, v.Name, v.Verb = "job", "backup", "jobs run"
	v.work = func(context.Context, *schedlock.Run, []string, <-chan struct{}) error { work(); return nil }
	return v
}

// leaderless has etcd without a leader for a time.
func leaderless(server *etcdfake.Server, after, lasts time.Duration) {
	time.Sleep(after)
	server.SetLeader(false)
	time.Sleep(lasts)
	server.SetLeader(true)
}

// A662: a process of this machine has died during its run, and its lease ends late, as etcd has elected a leader or was away: a
// call in its place runs the command again, as --retries permits.
func TestCallInPlaceOfADeadOneWhileEtcdIsAway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ after, lasts time.Duration }{
		"election": {10 * time.Second, time.Second},
		"away":     {3 * time.Second, 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := etcdfake.New(t)
				client := server.NewClient()
				s, err := concurrency.NewSession(t.Context(), client.Client, "test",
					&concurrency.SessionOptions{Prefix: "/nights", Owner: verb.Owner("jobs run"), TTL: 15 * time.Second, Logger: zap.NewNop()})
				require.NoError(t, err)
				defer func() { _ = s.Close(context.Background()) }()
				ran := 0
				v := standingBy(func() { ran++ })
				first, err := schedlock.New(s, &schedlock.Options{Keep: 3, Now: v.now})
				require.NoError(t, err)
				this, end := host(t, server, "etcdkit jobs run by this, process 1", v.now)
				defer end()
				done := make(chan error, 1)
				go func() {
					_, err := first.Do(t.Context(), v.Name, func(ctx context.Context, _ *schedlock.Run) error { <-ctx.Done(); return ctx.Err() },
						v.options(v.now(), 0)...)
					done <- err
				}()
				time.Sleep(5 * time.Minute)
				_ = client.Client.Close() // the process dies
				go leaderless(server, c.after, c.lasts)
				require.NoError(t, v.waiting(t.Context(), func() error { return v.attend(t.Context(), this, nil) }))
				require.Equal(t, 1, ran)
				<-done
			})
		})
	}
}

// A664: a run fails on another machine while etcd is away from a call on standby for more than a minute: the call exits with 0, as
// one does without an outage.
func TestCallOnStandbyBeforeAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := etcdfake.New(t)
		v := standingBy(func() { panic("it runs the command") })
		v.retries = 0
		other, endOther := host(t, server, "etcdkit jobs run by other, process 1", v.now)
		defer endOther()
		this, end := host(t, server, "etcdkit jobs run by this, process 1", v.now)
		defer end()
		failed := errors.New("exit code 3")
		done := make(chan error, 1)
		go func() {
			_, err := other.Do(t.Context(), v.Name, func(context.Context, *schedlock.Run) error { time.Sleep(time.Minute); return failed },
				v.options(v.now(), 0)...)
			done <- err
		}()
		time.Sleep(10 * time.Second)
		go leaderless(server, 10*time.Second, 2*time.Minute)
		calls := 0
		require.NoError(t, v.waiting(t.Context(), func() error {
			if calls++; calls > 1 {
				time.Sleep(2 * time.Minute) // the record of the end is there
			}
			return v.attend(t.Context(), this, nil)
		}))
		require.Equal(t, 2, calls)
		require.ErrorIs(t, <-done, failed)
	})
}
