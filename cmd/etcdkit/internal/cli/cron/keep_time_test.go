package cron

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
	"github.com/etcdkit/etcdkit/schedlock"
)

// clockwork is a job that notes when it is run.
type clockwork struct {
	next func(time.Time) time.Time
	mu   sync.Mutex
	runs []time.Time
}

func (c *clockwork) Next(t time.Time) time.Time { return c.next(t) }

func (c *clockwork) Run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs = append(c.runs, time.Now())
}

// A line runs at its fire times for a week of virtual time, and no more when its end has come.
func TestKeepTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := crontab.Parse("30 2 * * *", time.UTC)
		require.NoError(t, err)
		c := &clockwork{next: s.Next}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 7*24*time.Hour)
		defer cancel()
		keepTime(ctx, c, time.Now)
		require.Len(t, c.runs, 7)
		for i, at := range c.runs {
			require.Equal(t, begun.UTC().AddDate(0, 0, i).Add(150*time.Minute), at.UTC())
		}
	})
	synctest.Test(t, func(t *testing.T) { // one that never fires
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		keepTime(ctx, &clockwork{next: func(time.Time) time.Time { return time.Time{} }}, time.Now)
	})
}

// A280: the clock of a machine is two days ahead when it starts, and is set back while a line waits for its next time: the line runs
// at the earlier one, and each night after that.
func TestKeepTimeOfAClockThatIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := crontab.Parse("30 2 * * *", time.UTC)
		require.NoError(t, err)
		c := &clockwork{next: s.Next}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*24*time.Hour)
		defer cancel()
		keepTime(ctx, c, func() time.Time {
			if now := time.Now(); now.Sub(begun) < time.Hour {
				return now.AddDate(0, 0, 2)
			}
			return time.Now()
		})
		require.Len(t, c.runs, 3)
		for i, at := range c.runs {
			require.Equal(t, begun.UTC().AddDate(0, 0, i).Add(150*time.Minute), at.UTC())
		}
	})
}

// What is said about the ends of calls.
func TestNews(t *testing.T) {
	t.Parallel()
	for want, of := range map[string]struct {
		outcome schedlock.Outcome
		err     error
	}{
		"done, took 3s":                      {schedlock.Ran, nil},
		"exit code 3":                        {schedlock.Failed, errors.New("exit code 3")},
		"etcd is away":                       {schedlock.NotClaimed, errors.New("etcd is away")},
		"the run before is active, by web-7": {schedlock.StillRunning, nil},
		"the job is paused":                  {schedlock.Paused, nil},
	} {
		require.Equal(t, want, newsOf(schedlock.Result{Outcome: of.outcome, Owner: "web-7", Took: 3 * time.Second}, of.err))
	}
	require.Empty(t, newsOf(schedlock.Result{Outcome: schedlock.Claimed}, nil))
	require.Equal(t, []string{"B=2", "A=3"}, effective([]string{"A=1", "B=2", "A=3"}))
}
