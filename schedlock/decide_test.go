package schedlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/record"
)

// AtLeast must not end just when the next tick comes. It may be longer than the interval, and than
// AtMost.
func TestAtLeastAndTheInterval(t *testing.T) {
	t.Parallel()
	const refused, accepted = true, false
	for _, tt := range []struct {
		atLeast, interval time.Duration
		refused           bool
	}{
		{0, 0, accepted},
		{time.Hour, 0, accepted},
		{2 * defaultAtMost, 0, accepted},
		{0, time.Minute, accepted},
		{50 * time.Second, time.Minute, accepted},
		{time.Minute - early - time.Millisecond, time.Minute, accepted},
		{time.Minute - early, time.Minute, refused},
		{time.Minute, time.Minute, refused},
		{time.Minute + time.Millisecond, time.Minute, accepted},
		{5 * time.Minute, time.Minute, accepted},
		{179 * time.Millisecond, 200 * time.Millisecond, accepted},
		{180 * time.Millisecond, 200 * time.Millisecond, refused},
		{time.Minute, -time.Minute, accepted}, // the schedule has no next fire time
	} {
		_, job := newSettings(tt.interval, []Option{AtLeast(tt.atLeast)})
		opts := []CallOption{AtLeast(tt.atLeast)}
		if tt.interval > 0 {
			opts = append(opts, Every(tt.interval))
		}
		_, call := newRequest(opts)
		for _, err := range []error{job, call} {
			if tt.refused {
				require.ErrorIs(t, err, ErrInvalid, "%v", tt)
				require.ErrorContains(t, err, tt.interval.String())
			} else {
				require.NoError(t, err, "%v", tt)
			}
		}
	}
}

// What a call does before it has read anything, by what events have shown of its tick.
func TestUnread(t *testing.T) {
	t.Parallel()
	tick := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first, second := plan{tick: tick, attempt: 1}, plan{tick: tick, attempt: 2, mod: 7, before: "lost"}
	plain, patient := request{tick: tick}, request{tick: tick, settings: settings{retries: 1}}
	withdrawn, free := patient, request{settings: settings{retries: 1}}
	withdrawn.withdrawn = true
	claimed := observed{claimed: true, by: "other"}
	for name, tt := range map[string]struct {
		r    request
		p    plan
		h    observed
		late bool
		want decision
	}{
		"no event has arrived":                 {r: plain, p: first, want: decision{action: send, plan: first}},
		"claimed":                              {r: plain, p: first, h: claimed, want: decision{action: skip, outcome: Claimed, owner: "other"}},
		"claimed, and late":                    {r: plain, p: first, h: claimed, late: true, want: decision{action: skip, outcome: Claimed, owner: "other"}},
		"claimed, and perhaps lost":            {r: patient, p: first, h: claimed, want: decision{action: read}},
		"a further attempt is not put off":     {r: patient, p: second, h: claimed, want: decision{action: send, plan: second}},
		"an event before a further attempt":    {r: patient, p: second, h: observed{changed: true}, want: decision{action: read}},
		"late":                                 {r: plain, p: first, late: true, want: decision{action: skip, outcome: Late}},
		"a further attempt is late":            {r: patient, p: second, h: claimed, late: true, want: decision{action: skip, outcome: Late}},
		"its own claim, which was taken back":  {r: withdrawn, p: first, h: claimed, want: decision{action: send, plan: first}},
		"another call of the same millisecond": {r: free, p: first, h: claimed, want: decision{action: send, plan: first}},
	} {
		require.Equal(t, tt.want, tt.r.unread(tt.p, tt.h, tt.late), name)
	}
}

// What a call does after it has read what is in the way of its claim.
func TestDecide(t *testing.T) {
	t.Parallel()
	const mine, other, token = 11, 22, 5
	tick := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := tick.Add(time.Hour)
	stored := request{settings: settings{atMost: time.Hour, retries: 1}}.shared()
	timed := func(change func(*request)) request {
		r := request{tick: tick, settings: settings{atMost: time.Hour, retries: 1}}
		if change != nil {
			change(&r)
		}
		return r
	}
	untimed := timed(func(r *request) { r.tick = time.Time{} })
	once := timed(func(r *request) { r.retries = 0 })
	failed := timed(func(r *request) { r.retries, r.failed = 0, afterFailure{1, time.Second} })
	standby := timed(func(r *request) { r.standby = func(*job, time.Time, request) {} })
	kv := func(value string) []*mvccpb.KeyValue {
		return []*mvccpb.KeyValue{{Value: []byte(value), CreateRevision: token, ModRevision: token, Lease: other}}
	}
	run := func(state string, attempt int) []*mvccpb.KeyValue {
		return kv(record.Run{State: state, Attempt: attempt, Owner: "runner"}.Encode())
	}
	lock := kv(record.Lock{Owner: "locker"}.Encode())
	former := kv(record.Lock{Owner: "locker"}.Encode())
	former[0].CreateRevision = token + 1
	cooldown := kv(record.Lock{Owner: "cooler"}.Encode())
	active := run(record.RunRunning, 1)
	pause := kv(record.Pause{By: "ops", Reason: "a deploy", AtMS: later.UnixMilli()}.Encode())
	first := plan{tick: tick, attempt: 1}
	second := plan{tick: tick, attempt: 2, mod: token, before: string(active[0].Value)}
	sends := func(p plan) decision { return decision{action: send, plan: p} }
	skips := func(out Outcome, owner string) decision { return decision{action: skip, outcome: out, owner: owner} }
	for name, tt := range map[string]struct {
		st   state
		r    request
		want decision
	}{
		"nothing is in the way": {state{}, timed(nil), sends(first)},
		"the same settings":     {state{settings: kv(record.Settings{Text: stored}.Encode())}, timed(nil), sends(plan{tick: tick, attempt: 1, settings: stored})},

		"a run continues":                               {state{run: active, lock: lock}, timed(nil), decision{action: await, owner: "locker"}},
		"a run continues, and no attempt is left":       {state{run: active, lock: lock}, once, skips(Claimed, "runner")},
		"a run continues, and another waits for it":     {state{run: active, lock: lock}, standby, decision{action: delegate, outcome: Claimed, owner: "runner"}},
		"a run continues, and may fail":                 {state{run: active, lock: lock}, failed, decision{action: await, owner: "locker"}},
		"the last attempt continues, and may fail":      {state{run: run(record.RunRunning, 2), lock: lock}, failed, skips(Claimed, "runner")},
		"a run was lost, and had to fail":               {state{run: active}, failed, skips(Claimed, "runner")},
		"a run was lost":                                {state{run: active}, timed(nil), sends(second)},
		"a run was lost, and no attempt is left":        {state{run: active}, once, skips(Claimed, "runner")},
		"the last attempt was lost":                     {state{run: run(record.RunRunning, 2)}, timed(nil), skips(Claimed, "runner")},
		"a run was lost, but has ended here":            {state{run: active, endedHere: true}, timed(nil), skips(Claimed, "runner")},
		"a run was lost, and another tick runs":         {state{run: active, lock: former}, timed(nil), skips(StillRunning, "locker")},
		"a run was lost, and cools down":                {state{run: active, cooldown: cooldown}, timed(nil), decision{action: await, owner: "cooler", plan: second}},
		"a run was lost, cools down, and is waited for": {state{run: active, cooldown: cooldown}, standby, decision{action: delegate, outcome: Claimed, owner: "runner", plan: second}},
		"a run was lost, and a later tick claimed":      {state{run: active, latest: later}, timed(nil), skips(Late, "")},
		"a run failed, and an attempt is left":          {state{run: run(record.RunFailed, 1)}, failed, sends(plan{tick: tick, attempt: 2, mod: token, before: string(run(record.RunFailed, 1)[0].Value), pause: time.Second})},
		"a run failed, and a later tick was claimed":    {state{run: run(record.RunFailed, 1), latest: later}, failed, skips(Late, "")},
		"done":                         {state{run: run(record.RunDone, 1)}, timed(nil), skips(Claimed, "runner")},
		"failed":                       {state{run: run(record.RunFailed, 1)}, timed(nil), skips(Claimed, "runner")},
		"unlocked":                     {state{run: run(record.RunUnlocked, 1)}, timed(nil), skips(Claimed, "runner")},
		"a record that cannot be read": {state{run: kv("what?")}, timed(nil), skips(Claimed, "")},

		"a later tick was claimed":  {state{latest: later}, timed(nil), skips(Late, "")},
		"another tick runs":         {state{lock: lock}, timed(nil), skips(StillRunning, "locker")},
		"another tick cools down":   {state{cooldown: cooldown}, timed(nil), decision{action: skip, outcome: StillRunning, owner: "cooler", cooling: true}}, // A426
		"and one runs":              {state{lock: lock, cooldown: cooldown}, timed(nil), skips(StillRunning, "locker")},
		"paused":                    {state{pause: pause, lock: lock}, timed(nil), decision{action: skip, outcome: Paused, paused: &Pause{By: "ops", Reason: "a deploy", Since: time.UnixMilli(later.UnixMilli())}}},
		"paused, after a lost run":  {state{run: active, pause: pause}, timed(nil), decision{action: skip, outcome: Paused, paused: &Pause{By: "ops", Reason: "a deploy", Since: time.UnixMilli(later.UnixMilli())}}},
		"late comes before a pause": {state{latest: later, pause: pause}, timed(nil), skips(Late, "")},

		"no fire time, the millisecond was claimed":   {state{run: run(record.RunDone, 1)}, untimed, sends(plan{tick: tick.Add(time.Millisecond), attempt: 1})},
		"no fire time, a later one was claimed":       {state{latest: later, settings: kv(record.Settings{Text: stored}.Encode())}, untimed, sends(plan{tick: later.Add(time.Millisecond), attempt: 1, settings: stored})},
		"no fire time, a lost run and a later one":    {state{run: active, latest: later}, untimed, sends(plan{tick: later.Add(time.Millisecond), attempt: 1})},
		"no fire time, a run of the same millisecond": {state{run: active, lock: lock}, untimed, skips(StillRunning, "locker")},
		"no fire time, another run":                   {state{lock: lock}, untimed, skips(StillRunning, "locker")},
	} {
		require.Equal(t, tt.want, tt.st.decide("job", tick, tt.r, mine), name)
	}

	schedule := timed(func(r *request) { r.fires = fires{sample: "now"}.String() })
	theirs := kv(record.Settings{Text: stored + period + fires{sample: "then"}.String()}.Encode())
	refused := state{settings: theirs}.decide("job", tick, schedule, mine)
	require.Equal(t, refuse, refused.action)
	require.Equal(t, &SettingsError{Job: "job", Mine: schedule.shared(), Theirs: settingsOf(theirs[0])}, refused.err)
	require.Equal(t, send, state{settings: theirs}.decide("job", tick, schedule, other).action, "its own settings, which it may change")
	require.ErrorIs(t, state{settings: kv("")}.decide("job", tick, once, other).err, ErrSettings)
	require.ErrorContains(t, state{foreign: "job/x/run/zzz"}.decide("job", tick, once, mine).err, `"job/x/run/zzz" is not a run record`)
}

// The lease of a cooldown is an orphan's if none of the processes that live has made the claim with which it came.
func TestOrphaned(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	cooldown := []*mvccpb.KeyValue{{Lease: 7, Value: []byte(record.Lock{Lease: 5, AtMS: began.UnixMilli()}.Encode())}}
	for name, c := range map[string]struct {
		st   state
		live []int64
		want int64
	}{
		"none":             {state{}, nil, 0},
		"its process ends": {state{cooldown: cooldown}, []int64{4, 6}, 7},
		"and lives":        {state{cooldown: cooldown}, []int64{4, 5}, 0},
		"the job runs":     {state{cooldown: cooldown, lock: []*mvccpb.KeyValue{{}}}, nil, 0},
		"damaged":          {state{cooldown: []*mvccpb.KeyValue{{Lease: 7, Value: []byte("?")}}}, nil, 0},
	} {
		lease, at := c.st.orphaned(c.live)
		require.EqualValues(t, c.want, lease, name)
		require.Equal(t, c.want != 0, at.Equal(began), name)
	}
}
