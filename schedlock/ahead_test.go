package schedlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A419: a plan was written by a process whose clock is ahead by more than MaxSkew. It is replaced, shows no tick that was missed,
// and its event has it looked at. One that is ahead by no more counts.
func TestPlanByAClockAhead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 6, 12, 0, 0, 0, time.UTC)
	times := &timetable{schedule: Periods(time.Hour)}
	times.next(now)
	for name, x := range map[string]struct {
		ahead time.Duration
		wrong bool
	}{"as far as allowed": {time.Minute, false}, "further": {time.Minute + time.Millisecond, true}, "a day": {24 * time.Hour, true}} {
		stored := times.plan(now.Add(24 * time.Hour))
		stored.AliveMS = now.Add(x.ahead).UnixMilli()
		want := times.plan(now)
		want.AliveMS = now.UnixMilli()

		kvs := []*mvccpb.KeyValue{{Value: []byte(stored.Encode()), ModRevision: 7}}
		plan, _, differs := renewed(kvs, "", want, now, false)
		require.Equal(t, x.wrong, differs, name)
		require.Equal(t, x.wrong, plan.Encode() == want.Encode(), name)

		last := now.Add(-2 * time.Hour)
		p := past{last: last, began: last}
		due := p.dueBy(stored, times, 0, now)
		require.Equal(t, x.wrong, due.IsZero(), "%s: %v", name, due)

		l := &Locker{opts: Options{Now: func() time.Time { return now }}}
		plans := &planner{locker: l, jobs: map[string]*timetable{"job": times}, looked: map[string]bool{"job": true}, others: map[string]time.Time{}, changed: make(chan struct{}, 1)}
		plans.stored("job", stored)
		require.Equal(t, !x.wrong, plans.looked["job"], name)
		require.Len(t, plans.changed, map[bool]int{true: 1}[x.wrong], name)
	}
}

// A421: after a suspension of this process the readings from before it are too low by that, since its monotonic clock stood still.
// A list of the keys shows it, and the difference is not known until the next event. Of a list from before an event nothing follows.
func TestClockAfterASuspension(t *testing.T) {
	t.Parallel()
	now, seen := time.Date(2026, 3, 6, 12, 0, 0, 0, time.UTC), time.Now()
	for name, x := range map[string]struct {
		event, listed time.Duration // readings, by the other clock
		known         bool
	}{
		"suspended for an hour":          {-time.Hour, -30 * time.Second, false},
		"the list is older":              {0, -30 * time.Second, true},
		"the list is a little later":     {-2 * time.Second, 0, true},
		"the other clock was set by 20s": {-20 * time.Second, 0, false},
	} {
		p := &peer{readings: []reading{{now.Add(x.event), seen, false}, {now.Add(x.listed), seen, true}}}
		d, known := p.ahead(now)
		require.Equal(t, x.known, known, name)
		if known {
			require.InDelta(t, x.event, d, float64(time.Second), name)
		} else {
			require.Zero(t, d, name)
		}
	}
}
