package schedlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/record"
)

// K14: a plan is written if there is none, if it is of another schedule, or if its fire times have run out; the one
// that no process has started stays due.
func TestRenewedPlan(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1000)
	want := record.Plan{Schedule: "mine", DueMS: 1100, NextMS: []int64{1100, 1200}}
	mine := func(due, last int64) *record.Plan {
		return &record.Plan{Schedule: "mine", DueMS: due, NextMS: []int64{900, last}}
	}
	removed := func(schedule string, due, alive int64) *record.Plan {
		return new(record.Plan{Schedule: schedule, DueMS: due, NextMS: []int64{due, 2000}}.Removed(alive))
	}
	for name, x := range map[string]struct {
		stored  *record.Plan
		value   string
		unput   string
		resumed bool
		plan    record.Plan
		differs bool
	}{
		"none":                            {nil, "", "", false, want, true},
		"A640: not put back":              {nil, "", mine(900, 1050).Encode(), false, *mine(900, 1050), true},
		"A640: not put back, and resumed": {nil, "", mine(900, 1050).Encode(), true, want, true},
		"A640: another is stored":         {mine(1050, 1050), "", mine(900, 1050).Encode(), false, *mine(1050, 1050), false},
		"the same":                        {mine(900, 1050), "", "", false, *mine(900, 1050), false},
		"run out":                         {mine(900, 1000), "", "", false, record.Plan{Schedule: "mine", DueMS: 900, NextMS: []int64{1100, 1200}}, true},
		"of another schedule":             {&record.Plan{Schedule: "theirs", DueMS: 900, NextMS: []int64{900, 2000}}, "", "", false, want, true},
		"not readable":                    {nil, "what?", "", false, want, true},
		"A562: removed":                   {removed("mine", 1100, 500), "", "", false, want, true},
		"A562: removed, was due":          {removed("mine", 400, 500), "", "", false, record.Plan{Schedule: "mine", DueMS: 400, NextMS: []int64{1100, 1200}}, true},
		"A562: removed before it came":    {removed("mine", 600, 500), "", "", false, want, true},
		"A562: removed, and resumed":      {removed("mine", 400, 500), "", "", true, want, true},
		"A562: another was removed":       {removed("theirs", 400, 500), "", "", false, want, true},
		"K28: resumed, one has come":      {mine(900, 1050), "", "", true, want, true},
		"K28: resumed, before the first":  {mine(1050, 1050), "", "", true, *mine(1050, 1050), false},
	} {
		var kvs []*mvccpb.KeyValue
		if x.stored != nil {
			x.value = x.stored.Encode()
		}
		if x.value != "" {
			kvs = []*mvccpb.KeyValue{{Value: []byte(x.value), ModRevision: 7}}
		}
		plan, mod, differs := renewed(kvs, x.unput, want, now, x.resumed)
		require.Equal(t, x.plan.Encode(), plan.Encode(), name)
		require.Equal(t, x.differs, differs, name)
		require.Equal(t, int64(7*len(kvs)), mod, name)
	}
}

// A562: what is left of a plan that is removed, of which only OnMisfire knows: the schedule of a job that has run, and the fire time
// that was due when its last process removed it.
func TestWhatIsLeftOfAPlan(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1000)
	for name, x := range map[string]struct {
		due          int64
		ran, retired bool
		left         bool
		alive        int64
	}{
		"has run":                     {1100, true, false, true, 1000},
		"has run, retired":            {900, true, true, true, 800},
		"has never run":               {1100, false, false, false, 0},
		"has never run, is due":       {900, false, false, true, 1000},
		"has never run, retired":      {900, false, true, false, 0},
		"has never run, never at all": {0, false, false, false, 0},
	} {
		left, ok := former(record.Plan{Schedule: "mine", DueMS: x.due, NextMS: []int64{1100}, AliveMS: 800}, x.ran, x.retired, now)
		require.Equal(t, x.left, ok, name)
		if ok {
			require.Equal(t, record.Plan{Former: "mine", DueMS: x.due, AliveMS: x.alive}, left, name)
		}
	}
	for _, x := range []struct{ ran, retired, left bool }{{true, true, true}, {true, false, true}, {false, false, true}, {false, true, false}} {
		left, ok := former(record.Plan{Former: "mine", DueMS: 900, AliveMS: 800}, x.ran, x.retired, now)
		require.Equal(t, x.left, ok, "A643: what is left already: %+v", x)
		require.Equal(t, "mine", left.Former)
	}
	_, ok := former(record.Plan{DueMS: 900}, true, false, now)
	require.False(t, ok, "a plan that cannot be read")
}

// The fire times of a plan: the next three, and later ones for dense schedules, so that it lasts for an hour.
func TestPlanOfASchedule(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for every, want := range map[time.Duration][]time.Duration{
		time.Second:    {time.Second, 2 * time.Second, 3 * time.Second, 601 * time.Second, 3601 * time.Second},
		time.Minute:    {time.Minute, 2 * time.Minute, 3 * time.Minute, 11 * time.Minute, 61 * time.Minute},
		time.Hour:      {time.Hour, 2 * time.Hour, 3 * time.Hour},
		24 * time.Hour: {15 * time.Hour, 39 * time.Hour, 63 * time.Hour},
	} {
		tt := timetable{schedule: Periods(every)}
		tt.next(from)
		p := tt.plan(from)
		require.Equal(t, every.String(), p.Schedule)
		var got []time.Duration
		for _, at := range p.NextMS {
			got = append(got, time.UnixMilli(at).Sub(from))
		}
		require.Equal(t, want, got)
		require.Equal(t, p.NextMS[0], p.DueMS)
		require.Len(t, p.InRow(), 3)
		require.Zero(t, p.Next(p.NextMS[2]), "K23: the later ones are not the next")
	}
	tt := timetable{schedule: never{}}
	tt.next(from)
	require.Empty(t, tt.plan(from).NextMS)
}

// K60: a plan of one schedule by other zone files is not another one, and a period is none of fire times.
func TestSameSchedule(t *testing.T) {
	t.Parallel()
	of := func(sample, crontab string) string { return fires{"2024", sample, crontab}.String() }
	for _, x := range []struct {
		a, b string
		same bool
	}{
		{"5m0s", "5m0s", true},
		{"5m0s", "10m0s", false},
		{"5m0s", of("a", ""), false},
		{"", of("a", ""), false},
		{of("a", ""), of("b", ""), false},
		{of("a", `"0 9 * * *" in UTC`), of("b", `"0 9 * * *" in UTC`), true},
		{of("a", `"0 9 * * *" in UTC`), of("a", `"0 9 * * *" in Europe/London`), false},
	} {
		require.Equal(t, x.same, sameSchedule(x.a, x.b), "%s and %s", x.a, x.b)
	}
}

// K63: what events have shown is not written again.
func TestPlanThatEventsHaveShown(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1000)
	want := record.Plan{Schedule: "mine", DueMS: 1100, NextMS: []int64{1100, 1200}}
	for name, x := range map[string]struct {
		shown   record.Plan
		resumed bool
		written bool
	}{
		"nothing":                   {record.Plan{}, false, false},
		"what was to be written":    {want, false, true},
		"one that has run out":      {record.Plan{Schedule: "mine", NextMS: []int64{900}}, false, false},
		"of another schedule":       {record.Plan{Schedule: "theirs", NextMS: []int64{1100}}, false, false},
		"of before the resumption":  {record.Plan{Schedule: "mine", DueMS: 900, NextMS: []int64{900, 1100}}, true, false},
		"of after the resumption":   {want, true, true},
		"without a fire time to be": {record.Plan{Schedule: "mine"}, false, false},
	} {
		j := &job{planned: x.shown, shown: true}
		require.Equal(t, x.written, j.written(want, now, x.resumed), name)
		j.reading()
		require.False(t, j.written(want, now, x.resumed), name+", before the plan was read: a gap of the watch may have hidden its end")
	}
}
