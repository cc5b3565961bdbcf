package cron

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/crons"
	"github.com/etcdkit/etcdkit/schedlock"
)

// host is a machine in virtual time: its Locker, by its clock, and how its session is closed.
func host(t *testing.T, server *etcdfake.Server, name string, now func() time.Time) (l *schedlock.Locker, end func()) {
	t.Helper()
	client := server.NewClient()
	s, err := concurrency.NewSession(t.Context(), client.Client, "test", &concurrency.SessionOptions{Prefix: "/nights", Owner: name, TTL: 5 * time.Minute, Logger: zap.NewNop()})
	require.NoError(t, err)
	l, err = schedlock.New(s, &schedlock.Options{Keep: 3, Now: now})
	require.NoError(t, err)
	return l, func() {
		_ = s.Close(context.Background())
		_ = client.Close()
	}
}

// K48: what two processes of `etcdkit cron` really claim from an hour before each change of the clock until an hour after what the
// clock shows twice or leaves out, in virtual time, is the plan of cronie 1.7.2: each fire time once, and nothing else. -short has
// one zone.
func TestCronClaimsAsCronie(t *testing.T) {
	t.Parallel()
	for _, name := range crons.Zones {
		if testing.Short() && name != "America/Havana" {
			continue
		}
		loc, err := time.LoadLocation(name)
		require.NoError(t, err)
		windows := crons.Windows(loc)
		plans, err := crons.Plans(name, windows)
		require.NoError(t, err)
		for i, w := range windows {
			t.Run(name+w.Change.Format(" 0102"), func(t *testing.T) {
				t.Parallel()
				claimedAsCronie(t, loc, plans, i, w)
			})
		}
	}
}

// claimedAsCronie runs two processes around one change of the clock.
func claimedAsCronie(t *testing.T, loc *time.Location, plans []crons.Plan, i int, w crons.Window) {
	from, to := w.Change.Add(-time.Hour), w.Change.Add(w.By.Abs()+time.Hour)
	want := map[string][]time.Time{}
	for _, p := range plans {
		for _, at := range p.Around[i] {
			if !at.Before(from) && at.Before(to) {
				want[p.Line] = append(want[p.Line], at)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(from.Add(-time.Second)))
		server := etcdfake.New(t)
		type start struct {
			line string
			tick time.Time
		}
		ran := make(chan start, 10_000)
		ctx, stop := context.WithCancel(t.Context())
		for _, name := range []string{"one", "two"} {
			l, end := host(t, server, name, nil)
			defer end()
			for _, p := range plans {
				s, err := crontab.Parse(p.Line, loc)
				require.NoError(t, err)
				job, err := l.Job(p.Line, schedlock.Crontab{Text: s.Text(), Zone: loc, Schedule: s}, func(_ context.Context, r *schedlock.Run) error {
					ran <- start{p.Line, r.Tick().UTC()}
					return nil
				}, schedlock.AtMost(unbounded))
				require.NoError(t, err)
				go keepTime(ctx, job, time.Now)
			}
		}
		time.Sleep(time.Until(to.Add(-time.Second)))
		stop()
		synctest.Wait()
		close(ran)
		got := map[string][]time.Time{}
		for r := range ran {
			got[r.line] = append(got[r.line], r.tick)
		}
		require.Equal(t, want, got)
	})
}
