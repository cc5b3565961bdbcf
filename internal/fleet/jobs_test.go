package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// The next fire time is after the latest record, and not before the job was resumed: no process starts a
// tick from before that.
func TestNextFireTime(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour / time.Millisecond)
	for name, c := range map[string]struct {
		operated, next int64
		period, least  time.Duration
		state          string
		cooling        bool
		lock           int64
	}{
		"after the record":              {0, 11 * hour, time.Hour, 0, "done", false, 0},
		"paused before it":              {9 * hour, 11 * hour, time.Hour, 0, "done", false, 0},
		"resumed three hours on":        {13*hour + hour/2, 14 * hour, time.Hour, 0, "done", false, 0},
		"a period is not known":         {0, 0, 0, 0, "done", false, 0},
		"K27: a cooldown":               {0, 13 * hour, time.Hour, 2 * time.Hour, "done", true, 0}, // from one second after its tick
		"K27: a cooldown of a part":     {0, 11 * hour, time.Hour, 10 * time.Minute, "done", true, 0},
		"K27: resumed after a cooldown": {13*hour + hour/2, 14 * hour, time.Hour, 2 * time.Hour, "done", true, 0},
		"a run that is active":          {0, 13 * hour, time.Hour, 2 * time.Hour, "running", false, 7},
		"Unlock ends a cooldown":        {0, 11 * hour, time.Hour, 2 * time.Hour, "unlocked", false, 0},
	} {
		earlier := Run{State: "unlocked", Start: 9*hour + 1000}
		j := &Job{Period: c.period, least: c.least, operated: c.operated, Cooling: c.cooling, lock: c.lock}
		j.Runs = map[int64]Run{9 * hour: earlier, 10 * hour: {State: c.state, Start: 10*hour + 1000}}
		require.Equal(t, c.next, j.History(time.UnixMilli(10*hour)).Next, name)
		if next := j.Upcoming(time.UnixMilli(max(10*hour, c.operated)), 1); c.period > 0 {
			require.Equal(t, []time.Time{time.UnixMilli(c.next)}, next, "A252: "+name)
		}
	}
}

// K14: of a job that has not run, or whose schedule has no period, the plan has the next fire time, while a process has
// the job. It is not before the latest record or resumption.
func TestNextFireTimeOfAPlan(t *testing.T) {
	t.Parallel()
	s, put := planned(t)
	space := s.space
	keys := space.Job("nightly")
	plan := record.Plan{Schedule: "fire time like", DueMS: 1000, NextMS: []int64{1000, 2000, 3000}}
	put(keys.Plan(), plan.Encode())
	j := s.Jobs["nightly"]
	require.Zero(t, j.History(time.UnixMilli(500)).Next, "no process has it")
	require.True(t, j.Planned())
	put(space.User(7, 0), record.User{Jobs: []string{"other", "nightly"}}.Encode())
	put(space.User(8, 0), record.User{Jobs: []string{"nightly"}}.Encode())
	require.Equal(t, 2, s.Users("nightly"))
	require.EqualValues(t, 1000, j.History(time.UnixMilli(500)).Next)
	require.Equal(t, []time.Time{time.UnixMilli(2000), time.UnixMilli(3000)}, j.Upcoming(time.UnixMilli(1000), 5))
	put(keys.Operated(), record.Operated{AtMS: 1500}.Encode())
	require.EqualValues(t, 2000, j.History(time.UnixMilli(500)).Next)
	plan.Sparse = 1
	put(keys.Plan(), plan.Encode())
	require.Equal(t, []time.Time{time.UnixMilli(2000)}, j.Upcoming(time.UnixMilli(1000), 5), "the third does not follow the second")
	require.Empty(t, j.Upcoming(time.UnixMilli(2000), 5))
	j.Runs[2000] = Run{State: "done"}
	require.EqualValues(t, 3000, j.History(time.UnixMilli(500)).Next)
	put(space.User(7, 0), record.User{Jobs: []string{"other"}}.Encode())
	require.Equal(t, 1, s.Users("nightly"))
	s.Remove(space.User(8, 0), 2, 0)
	require.Zero(t, s.Users("nightly"))
	require.Equal(t, 1, s.Users("other"))
	require.Zero(t, j.History(time.UnixMilli(500)).Next)
	require.Empty(t, j.Upcoming(time.UnixMilli(0), 5))
}

// K25: the plan that calls have written counts without a live process, and a start is due by as much later as calls may
// be late. A week after that it counts no more.
func TestNextFireTimeOfCalls(t *testing.T) {
	t.Parallel()
	s, put := planned(t)
	put(s.space.Job("nightly").Plan(), record.Plan{Schedule: "every 24h", DueMS: 1000, NextMS: []int64{1000, 2000, 3000}, Called: true, LateMS: 600}.Encode())
	j := s.Jobs["nightly"]
	require.EqualValues(t, 1600, j.History(time.UnixMilli(500)).Next)
	require.Equal(t, []time.Time{time.UnixMilli(2000), time.UnixMilli(3000)}, j.Upcoming(time.UnixMilli(1000), 5))
	j.Runs[1000] = Run{State: "done"}
	require.EqualValues(t, 2600, j.History(time.UnixMilli(500)).Next, "a claim that has no plan")
	week := time.UnixMilli(1600).Add(record.Kept)
	require.EqualValues(t, 2600, j.History(week).Next)
	require.Zero(t, j.History(week.Add(time.Millisecond)).Next)
	require.Empty(t, j.Upcoming(week.Add(time.Millisecond), 5))
}

// A276: of a job that was planned it is known that no process has it, also while it is paused and after a Resume; not of one that
// calls start, that is run without its plan since, or that is retired.
func TestProcesses(t *testing.T) {
	t.Parallel()
	const hour, week = int64(time.Hour / time.Millisecond), 7 * 24 * int64(time.Hour/time.Millisecond)
	plan := record.Plan{Schedule: "fire time like", DueMS: 1, NextMS: []int64{1, 2}, AliveMS: hour}
	called := plan
	called.Called = true
	for name, c := range map[string]struct {
		plan          record.Plan
		users         int
		paused        bool
		operated, run int64
		now           int64
		want          int
		known         bool
	}{
		"two processes":                  {plan, 2, false, 0, hour, 3 * week, 2, true},
		"none":                           {plan, 0, false, 0, hour, 2 * hour, 0, true},
		"none, for a week":               {plan, 0, false, 0, hour, hour + week, 0, true},
		"retired":                        {plan, 0, false, 0, hour, hour + week + 1, 0, false},
		"paused for weeks":               {plan, 0, true, 2 * hour, hour, 9 * week, 0, true},
		"resumed after weeks":            {plan, 0, false, 9 * week, hour, 9*week + hour, 0, true},
		"resumed a week ago":             {plan, 0, false, 9 * week, hour, 10*week + 1, 0, false},
		"calls start it":                 {called, 0, false, 0, hour, 2 * hour, 0, false},
		"it was never planned":           {record.Plan{}, 0, true, 0, hour, 2 * hour, 0, false},
		"it was run without a plan":      {plan, 0, false, 0, 2 * hour, 3 * hour, 0, false},
		"it was run by a clock in front": {plan, 0, false, 0, hour + 30_000, 3 * hour, 0, true},
	} {
		s, put := planned(t)
		keys := s.space.Job("nightly")
		put(keys.Plan(), c.plan.Encode())
		for n := range c.users {
			put(s.space.User(int64(n+7), 0), record.User{Jobs: []string{"nightly"}}.Encode())
		}
		j := s.Jobs["nightly"]
		j.Paused, j.operated, j.Runs[hour] = c.paused, c.operated, Run{State: "done", Start: c.run}
		now := time.UnixMilli(c.now)
		n, known := j.Processes(now, j.History(now))
		require.Equal(t, []any{c.want, c.known}, []any{n, known}, name)
	}
}

// A394: a process of a later release, whose list of jobs cannot be read, may have a job: that no process has it is not known.
func TestProcessesOfALaterRelease(t *testing.T) {
	t.Parallel()
	s, put := planned(t)
	put(s.space.Job("nightly").Plan(), record.Plan{Schedule: "fire time like", DueMS: 1, NextMS: []int64{1, 2}, AliveMS: 100}.Encode())
	j, now := s.Jobs["nightly"], time.UnixMilli(200)
	known := func() bool { _, known := j.Processes(now, j.History(now)); return known }
	require.True(t, known())
	put(s.space.User(7, 0), `{"v":2,"jobs":{"nightly":[]}}`)
	require.False(t, known())
	s.Remove(s.space.User(7, 0), 9, now.UnixMilli())
	require.True(t, known())
}

// K62: a pause that outlasts the list of a plan by calls, which no process renews, ends with a fire time: a call is due by the
// greatest distance later.
func TestResumedPlanOfCalls(t *testing.T) {
	t.Parallel()
	const resumed = int64(9000)
	for name, c := range map[string]struct {
		plan record.Plan
		next int64
	}{
		"within the list":   {record.Plan{NextMS: []int64{1000, 2000, 10000}}, 10600},
		"beyond it":         {record.Plan{NextMS: []int64{1000, 2000, 4000}}, 11600},
		"within later ones": {record.Plan{NextMS: []int64{1000, 2000, 3000, 20000}, Sparse: 1}, 10600},
		"one fire time":     {record.Plan{NextMS: []int64{1000}}, 0},
	} {
		s, put := planned(t)
		c.plan.Schedule, c.plan.DueMS, c.plan.Called, c.plan.LateMS = "every hour", 1000, true, 600
		put(s.space.Job("nightly").Plan(), c.plan.Encode())
		j := s.Jobs["nightly"]
		j.operated = resumed
		now := time.UnixMilli(resumed)
		require.Equal(t, c.next, j.History(now).Next, name)
		require.Equal(t, c.next, j.History(now.Add(record.Kept)).Next, name)
		require.Zero(t, j.History(now.Add(record.Kept+time.Second)).Next, name)
	}
}

// K28: a resumption is of the time at which it has arrived here, and not of the operator's clock; if that is not known,
// it is not of the future. Another list does not change it.
func TestResumedByAnotherClock(t *testing.T) {
	t.Parallel()
	s, put := planned(t)
	keys := s.space.Job("nightly")
	plan := record.Plan{Schedule: "fire time like", DueMS: 1000, NextMS: []int64{1000, 2000, 3000}}.Encode()
	user := record.User{Jobs: []string{"nightly"}}.Encode()
	put(keys.Plan(), plan)
	put(s.space.User(7, 0), user)
	operated := func(at int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(keys.Operated()), Value: []byte(record.Operated{AtMS: at}.Encode()), CreateRevision: 1, ModRevision: at}
	}
	resume := func(s *State, at, now int64) { s.Put(operated(at), now) }
	next := func(s *State) int64 { return s.Jobs["nightly"].History(time.UnixMilli(500)).Next }
	resume(s, 2500, 500)
	require.EqualValues(t, 1000, next(s), "a fast clock")
	resume(s, 700, 1500)
	require.EqualValues(t, 1000, next(s))
	s.resumed(operated(700), 1500)
	require.EqualValues(t, 2000, next(s), "a slow clock")
	s.resumed(&mvccpb.KeyValue{Key: []byte(keys.Plan()), ModRevision: 700}, 2500)
	s.resumed(&mvccpb.KeyValue{Key: []byte("elsewhere"), ModRevision: 700}, 2500)
	require.EqualValues(t, 2000, next(s))
	fresh, again := planned(t)
	again(keys.Plan(), plan)
	again(s.space.User(7, 0), user)
	resume(fresh, 700, 4000)
	require.EqualValues(t, 1000, next(fresh))
	fresh.inherit(s)
	require.EqualValues(t, 2000, next(fresh))
}

// A242: a request for a run is no resumption. A start that was due before it is due still, and what is known of the last
// Resume stays.
func TestRequestIsNoResumption(t *testing.T) {
	t.Parallel()
	s, put := planned(t)
	keys := s.space.Job("nightly")
	put(keys.Plan(), record.Plan{Schedule: "fire time like", DueMS: 1000, NextMS: []int64{1000, 2000, 3000, 4000}}.Encode())
	put(s.space.User(7, 0), record.User{Jobs: []string{"nightly"}}.Encode())
	next := func() int64 { return s.Jobs["nightly"].History(time.UnixMilli(500)).Next }
	operated := func(rev, now int64, r record.Operated) {
		kv := &mvccpb.KeyValue{Key: []byte(keys.Operated()), Value: []byte(r.Encode()), CreateRevision: 10, ModRevision: rev}
		s.Put(kv, now)
		s.resumed(kv, now)
	}
	operated(10, 1500, record.Operated{})
	require.EqualValues(t, 1000, next(), "the first operation is a request")
	operated(11, 1600, record.Operated{Revision: 10})
	require.EqualValues(t, 1000, next(), "a second request")
	operated(12, 2500, record.Operated{AtMS: 1700})
	require.EqualValues(t, 3000, next(), "a Resume, by a slow clock")
	operated(13, 3500, record.Operated{AtMS: 1700, Revision: 12})
	require.EqualValues(t, 3000, next(), "a request after it")
	s.Remove(keys.Operated(), 2, 0)
	require.EqualValues(t, 1000, next())
	operated(20, 3500, record.Operated{AtMS: 1700, Revision: 12})
	require.EqualValues(t, 2000, next(), "its arrival is not known")
}

// A fire time that comes during a run is skipped, so none of them is due when the run has ended, by itself or by an operator's
// Unlock. One that came before the run began is due. If a plan has no fire time after that, the one that it has is due, so
// that the job is not gone.
func TestNextFireTimeAfterALongRun(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour / time.Millisecond)
	s, put := planned(t)
	keys := s.space.Job("nightly")
	put(s.space.User(7, 0), record.User{Jobs: []string{"nightly"}}.Encode())
	runs := func(state string, start, end int64) {
		put(keys.Run(time.UnixMilli(10*hour)), record.Run{State: state, Attempt: 1, StartMS: start, EndMS: end}.Encode())
	}
	runs(record.RunRunning, 10*hour+1000, 0)
	j := s.Jobs["nightly"]
	j.Period = time.Hour
	next := func() int64 { return j.History(time.UnixMilli(14 * hour)).Next }
	require.Equal(t, 11*hour, next())
	runs(record.RunUnlocked, 10*hour+1000, 13*hour+hour/2)
	require.Equal(t, 14*hour, next())
	runs(record.RunDone, 13*hour+1000, 13*hour+hour/2)
	require.Equal(t, 11*hour, next(), "the run began after it")
	runs(record.RunDone, 10*hour+1000, 13*hour+hour/2)

	j.Period = 0
	plan := record.Plan{Schedule: "by day", DueMS: 10 * hour, NextMS: []int64{11 * hour, 15 * hour}}
	put(keys.Plan(), plan.Encode())
	require.Equal(t, 15*hour, next())
	plan.NextMS = []int64{11 * hour}
	put(keys.Plan(), plan.Encode())
	require.Equal(t, 11*hour, next())
}

// planned returns a state, and what puts a key at the time 5000.
func planned(t *testing.T) (s *State, put func(key, value string)) {
	t.Helper()
	space, err := keyspace.New("/etcdkit", "shop")
	require.NoError(t, err)
	s = NewState(space, true)
	return s, func(key, value string) {
		s.Put(&mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: 1, ModRevision: 1, Lease: 7}, 5000)
	}
}

// A job of which Forget has left its floor alone is forgotten, and used again it is not.
func TestForgotten(t *testing.T) {
	t.Parallel()
	space, err := keyspace.New("/etcdkit", "shop")
	require.NoError(t, err)
	s, keys := NewState(space, true), space.Job("invoices")
	put := func(key string) { s.Put(&mvccpb.KeyValue{Key: []byte(key), CreateRevision: 1, ModRevision: 1}, 0) }
	put(keys.Floor(time.Unix(60, 0)))
	require.True(t, s.Jobs["invoices"].Forgotten())
	put(keys.Cooldown())
	put(keys.Cooldown())
	require.False(t, s.Jobs["invoices"].Forgotten())
	require.True(t, s.Jobs["invoices"].Cooling)
	s.Remove(keys.Cooldown(), 2, 0)
	require.True(t, s.Jobs["invoices"].Forgotten())
	require.False(t, s.Jobs["invoices"].Cooling)
	s.Remove(keys.Floor(time.Unix(60, 0)), 2, 0)
	require.Empty(t, s.Jobs)
}

// A202: the time of a resumption of a later version is not known: nothing is due that came before it has arrived here.
func TestResumedByALaterRelease(t *testing.T) {
	t.Parallel()
	s, put := planned(t)
	keys := s.space.Job("nightly")
	put(keys.Plan(), record.Plan{Schedule: "fire time like", DueMS: 1000, NextMS: []int64{1000, 6000}}.Encode())
	put(s.space.User(7, 0), record.User{Jobs: []string{"nightly"}}.Encode())
	next := func() int64 { return s.Jobs["nightly"].History(time.UnixMilli(500)).Next }
	require.EqualValues(t, 1000, next())
	put(keys.Operated(), `{"v":2,"at":[1,2]}`)
	require.EqualValues(t, 6000, next())
}
