package schedlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/record"
)

// A250: a plan by calls counts for a week after a call was due, or after the job was resumed, for the reader as for the process
// that removes plans. The clock of an operator that is ahead does not prolong that.
func TestPlanCountsAfterAResume(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	p := record.Plan{Called: true, DueMS: due.UnixMilli(), LateMS: time.Hour.Milliseconds(), AliveMS: due.Add(-24 * time.Hour).UnixMilli()}
	week := time.Hour + record.Kept
	resumed := due.Add(30 * 24 * time.Hour)
	for name, c := range map[string]struct {
		operated, now time.Time
		counts        bool
	}{
		"a week after it was due":   {time.Time{}, due.Add(week), true},
		"later":                     {time.Time{}, due.Add(week + time.Second), false},
		"a week after a Resume":     {resumed, resumed.Add(week), true},
		"later than that":           {resumed, resumed.Add(week + time.Second), false},
		"an operator's clock ahead": {resumed, due.Add(20 * 24 * time.Hour), true},
	} {
		var operated []*mvccpb.KeyValue
		if !c.operated.IsZero() {
			operated = []*mvccpb.KeyValue{{Value: []byte(record.Operated{AtMS: c.operated.UnixMilli()}.Encode())}}
		}
		at := operatedAt(operated, c.now)
		require.LessOrEqual(t, at, c.now.UnixMilli(), name)
		require.Equal(t, !c.counts, retired(p, c.now, at), name)
		require.Equal(t, c.counts, Plan{Called: true, Due: due, Late: time.Hour, operated: record.Time(at)}.Expected(c.now), name)
	}
	require.Zero(t, operatedAt(nil, due))
	require.Equal(t, due.UnixMilli(), operatedAt([]*mvccpb.KeyValue{{Value: []byte(`{"v":2}`)}}, due), "of a later release")
}

// A252: the next fire time is none of those that the cooldown of the latest run skips.
func TestNextFireAfterACooldown(t *testing.T) {
	t.Parallel()
	at := func(hour, minute int) time.Time { return time.Date(2026, 3, 2, hour, minute, 0, 0, time.UTC) }
	st := Status{Last: &Record{Tick: at(9, 0), Start: at(9, 1)}, CoolingDown: true}
	st.Settings = "AtMost 1h0m0s, AtLeast 2h0m0s, Retries 0, Every 1h0m0s"
	require.Equal(t, at(12, 0), st.NextFire(at(9, 30)))
	require.Equal(t, at(13, 0), st.NextFire(at(12, 30)))
	st.Settings = "AtMost 1h0m0s, AtLeast 2h0m0s, Retries 0"
	st.Plan = &Plan{Live: true, Next: []time.Time{at(10, 0), at(11, 0), at(12, 0)}}
	require.Equal(t, at(12, 0), st.NextFire(at(9, 30)))
	st.CoolingDown, st.Running = false, true
	require.Equal(t, at(12, 0), st.NextFire(at(9, 30)), "the cooldown counts from its start")
	st.Running = false
	require.Equal(t, at(10, 0), st.NextFire(at(9, 30)), "Unlock has ended the cooldown")
}
