package idempotency

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/record"
)

// recorded is a state with a record, read from a majority.
func recorded(kind string) state {
	return state{kv: &mvccpb.KeyValue{ModRevision: 7}, rec: record.Attempt{State: kind}, majority: true}
}

// Each thing that can be known and asked leads to one decision.
func TestDecide(t *testing.T) {
	t.Parallel()
	working, done, failed, released := recorded(record.AttemptWorking), recorded(record.AttemptDone), recorded(record.AttemptFailed), recorded(record.AttemptReleased)
	with := func(st state, change func(*state)) state { change(&st); return st }
	live := func(st *state) { st.live = true }
	guess := func(st *state) { st.majority = false }
	inProgress := with(working, live)
	givenUp, refuses := recorded(record.AttemptLost), with(working, func(st *state) { st.rec.Refuse = true })
	wait, refuse := asked{waits: true}, asked{refuses: true}
	for name, c := range map[string]struct {
		known known
		asked asked
		want  decision
	}{
		"nothing there":                       {known{state: state{majority: true}}, wait, admitNew},
		"nothing there, says one member":      {known{}, wait, admitNew},
		"done":                                {known{state: done, agrees: true}, wait, replayOutcome},
		"failed":                              {known{state: failed, agrees: true}, asked{}, replayOutcome},
		"done, says one member":               {known{state: with(done, guess), agrees: true}, wait, replayOutcome},
		"done, another payload":               {known{state: done}, wait, refuseMismatch},
		"another payload, says one member":    {known{state: with(done, guess)}, wait, askMajority},
		"released":                            {known{state: released, agrees: true}, wait, admitNew},
		"released, another payload":           {known{state: released}, wait, refuseMismatch},
		"released, says one member":           {known{state: with(released, guess), agrees: true}, wait, askMajority},
		"unreadable":                          {known{state: with(working, func(st *state) { st.bad = true })}, wait, refuseUnreadable},
		"unreadable, says one member":         {known{state: with(working, func(st *state) { st.bad, st.majority = true, false })}, wait, askMajority},
		"in progress":                         {known{state: inProgress, agrees: true}, wait, awaitAttempt},
		"in progress, no wait":                {known{state: inProgress, agrees: true}, asked{}, refuseInProgress},
		"in progress, another payload":        {known{state: inProgress}, wait, refuseMismatch},
		"in progress, says one member":        {known{state: with(inProgress, guess), agrees: true}, wait, askMajority},
		"lost":                                {known{state: working, agrees: true}, wait, admitNew},
		"given up":                            {known{state: givenUp, agrees: true}, wait, admitNew},
		"given up, the caller refuses":        {known{state: givenUp, agrees: true, confirmed: true}, refuse, refuseUnknown},
		"lost, another payload":               {known{state: working}, wait, refuseMismatch},
		"lost, the caller refuses":            {known{state: working, agrees: true}, refuse, askMajority},
		"the same, confirmed":                 {known{state: working, agrees: true, confirmed: true}, refuse, refuseUnknown},
		"lost, the record refuses":            {known{state: refuses, agrees: true}, wait, askMajority},
		"the same, confirmed: ":               {known{state: refuses, agrees: true, confirmed: true}, wait, refuseUnknown},
		"a claim that is taken back":          {known{state: refuses, agrees: true, undoing: true}, wait, awaitUndo},
		"the same, no wait: ":                 {known{state: refuses, agrees: true, undoing: true}, refuse, refuseInProgress},
		"released, where the caller refuses":  {known{state: released, agrees: true}, refuse, admitNew},
		"nothing there, the caller refuses: ": {known{state: state{majority: true}}, refuse, admitNew},
	} {
		require.Equal(t, c.want, decide(c.known, c.asked), name)
	}
}

// Whatever is known and asked: nothing begins beside a live attempt or after an outcome, or where a
// lost attempt is refused; and of one member's answer only an outcome is used.
func TestDecideNeverBeginsTwice(t *testing.T) {
	t.Parallel()
	seen := map[decision]int{}
	for bits := range 1 << 12 {
		bit := func(n int) bool { return bits>>n&1 == 1 }
		st := state{}
		if bit(0) {
			st = recorded([]string{record.AttemptWorking, record.AttemptDone, record.AttemptFailed, record.AttemptReleased}[bits>>1&3])
			if bit(11) && st.working() {
				st.rec.State = record.AttemptLost
			}
			st.bad, st.rec.Refuse = bit(3), bit(4)
		}
		st.live, st.majority = bit(5) && st.working(), bit(6)
		k, q := known{state: st, agrees: bit(7), undoing: bit(8) && st.lost(), confirmed: bit(9)}, asked{waits: bit(10), refuses: bits%3 == 0}
		got, says := decide(k, q), fmt.Sprintf("%+v %+v", k, q)
		seen[got]++
		if got == admitNew {
			require.False(t, st.live || st.finished() || st.bad, says)
			require.False(t, st.lost() && (st.rec.Refuse || q.refuses || k.undoing), says)
			require.True(t, st.kv == nil || st.majority && k.agrees, says)
		}
		if st.kv != nil && !st.majority {
			require.Contains(t, []decision{askMajority, replayOutcome}, got, says)
		}
		if got == awaitAttempt || got == awaitUndo {
			require.True(t, q.waits, says)
		}
	}
	require.Len(t, seen, 9, "every decision was made")
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		majority, room, scopeFull, leased bool
		want                              decision
	}{
		"room":                               {room: true, leased: true, want: claimKey},
		"near quota":                         {majority: true, leased: true, want: refuseNearQuota},
		"near quota, one member":             {leased: true, want: askMajority},
		"the scope is full":                  {majority: true, room: true, scopeFull: true, leased: true, want: refuseScopeFull},
		"the same, says one member":          {room: true, scopeFull: true, leased: true, want: askMajority},
		"no lease":                           {majority: true, room: true, want: claimKey},
		"no lease, and one member was asked": {room: true, want: askMajority},
	} {
		require.Equal(t, c.want, admission(c.majority, c.room, c.scopeFull, c.leased), name)
	}
}
