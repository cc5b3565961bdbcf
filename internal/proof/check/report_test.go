package check

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// TestMain has .ci/run draw the same histories each time: that a random one cannot be spoilt in the way
// that a test assumes says nothing about a change. Everywhere else the draws are random.
func TestMain(m *testing.M) {
	flag.Parse()
	if seed := flag.Lookup("rapid.seed"); os.Getenv("CI") != "" && seed.Value.String() == "0" {
		_ = seed.Value.Set("2026")
	}
	embedtest.Main(m)
}

// TestVerdicts: what is not red need not be green.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		build func(t *scenario)
		want  Verdict
		says  string
	}{
		"green":           {func(*scenario) {}, Green, ""},
		"enough happened": {func(t *scenario) { t.set(RequirePrefix+EffectGrants, "1"); t.grant(t.asks(0, t.sem, 1)) }, Green, ""},
		"too little happened": {func(t *scenario) {
			t.set(RequirePrefix+EffectExpiries, "1")
		}, Void, "expiries: 0, at least 1"},
		"closing is no expiry": {func(t *scenario) {
			t.set(RequirePrefix+EffectExpiries, "2")
			t.expire(t.clients[0])
			t.nemesis(history.Event{Lease: t.clients[1].lease}, func() { t.drop(t.clients[1].lease, "revoked") })
			t.open(t.clients[1])
		}, Void, "expiries: 1, at least 2"},
		"counters count": {func(t *scenario) {
			t.set(RequirePrefix+"leader changes", "3")
			t.emit(history.Event{Kind: history.KindCount, Name: "leader changes", N: 2})
			t.emit(history.Event{Kind: history.KindCount, Name: "leader changes", N: 1})
		}, Green, ""},
		"more than is tolerated": {func(t *scenario) {
			t.set(ToleratePrefix+"uncaused leader changes", "3")
			t.emit(history.Event{Kind: history.KindCount, Name: "uncaused leader changes", N: 4})
		}, Inconclusive, "4 uncaused leader changes"},
		"the tap has a gap": {func(t *scenario) {
			t.emit(history.Event{Kind: history.KindMark, Name: history.MarkTapGap, Error: "compacted"})
		}, Inconclusive, "compacted"},
		"the tap has a gap, and something looks bad": {func(t *scenario) {
			a := t.asks(0, t.sem, 1)
			t.grant(a)
			t.remove(a.req, "?")
			t.check(a)
			t.check(a)
			t.emit(history.Event{Kind: history.KindMark, Name: history.MarkTapGap, Error: "compacted"})
		}, Inconclusive, "compacted"},
		"the run found something": {func(t *scenario) {
			t.emit(history.Event{Kind: history.KindFinding, Name: "left", Error: "a goroutine"})
		}, Red, "end/left: a goroutine"},
		"the run has a doubt": {func(t *scenario) {
			t.emit(history.Event{Kind: history.KindFinding, Name: "mend", Cause: history.Doubt, Error: "a member is away"})
		}, Inconclusive, "end/mend: a member is away"},
		"red beats inconclusive": {func(t *scenario) {
			t.set(ToleratePrefix+"x", "0")
			t.emit(history.Event{Kind: history.KindCount, Name: "x", N: 1})
			t.statusOf(t.sem, 1)
		}, Red, "read that 1 are held"},
		"the search takes too long": {func(t *scenario) {
			t.set(SettingLinear, "1ns")
			for range 30 {
				a := t.asks(0, t.sem, 1)
				t.grant(a)
				t.gives(a)
			}
		}, Inconclusive, "no order of"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScenario()
			tt.build(s)
			s.finish()
			r := Judge(s.history(), all...)
			require.Equal(t, tt.want, r.Verdict, r.String())
			require.Contains(t, r.String(), tt.says)
			require.True(t, strings.HasPrefix(r.String(), strings.ToUpper(string(tt.want))))
		})
	}
}

// TestNoTap: without one, or without its end, the store is not judged.
func TestNoTap(t *testing.T) {
	t.Parallel()
	for _, mark := range []string{history.MarkTap, history.MarkTapComplete} {
		s := newScenario()
		s.finish()
		h := s.history()
		kept := &history.History{}
		for _, e := range h.Events {
			if e.Kind != history.KindMark || e.Name != mark {
				kept.Events = append(kept.Events, e)
			}
		}
		require.Equal(t, Inconclusive, Judge(kept, all...).Verdict, "without %q", mark)
	}
}

// TestBeliefsWithoutTap: what can be judged without etcd's own events is judged.
func TestBeliefsWithoutTap(t *testing.T) {
	t.Parallel()
	broken := func(build func(t *scenario)) []string {
		s := newScenario()
		build(s)
		s.finish()
		h := &history.History{}
		for _, e := range s.history().Events {
			if e.KV == nil && e.Kind != history.KindMark {
				h.Events = append(h.Events, e)
			}
		}
		return Judge(h, Belief{}, Fence{}, Linear{}, Live{}).Killers()
	}
	require.Empty(t, broken(func(t *scenario) {
		t.askLimit(2, 0)
		a, b, c := t.asks(0, t.mutex, 1), t.asks(1, t.sem, 2), t.asks(2, t.mutex, 1)
		t.grant(a)
		t.grant(b)
		t.byGuard(b)
		t.byToken(a)
		t.end(a, history.Lost)
		t.drop(a.req.lease, "expired")
		t.open(t.clients[0])
		t.grant(c)
		t.byToken(c)
	}))
	require.Equal(t, []string{"belief/overlap", "linear/order"}, broken(func(t *scenario) {
		a, b := t.asks(0, t.mutex, 1), t.asks(1, t.mutex, 1)
		t.grant(a)
		t.grant(b)
	}))
	require.Equal(t, []string{"linear/order"}, broken(func(t *scenario) { // a limit that was set, and another's
		t.askLimit(1, 0)
		t.askLimit(2, 0)
		t.last(history.KindCall).Gate, t.last(history.KindReturn).Gate = "semaphore/b", "semaphore/b"
		t.grant(t.asks(0, t.sem, 1))
		t.grant(t.asks(1, t.sem, 1))
	}))
	require.Empty(t, broken(func(t *scenario) { // whose answer was lost: it may be so
		t.askLimit(1, 0)
		t.askLimit(2, 0)
		t.last(history.KindReturn).Outcome = history.Unknown
		t.grant(t.asks(0, t.sem, 1))
		t.grant(t.asks(1, t.sem, 1))
	}))
}

// TestSave: everything is written, and the picture shows the queue.
func TestSave(t *testing.T) {
	t.Parallel()
	s := newScenario()
	a, b := s.asks(0, s.mutex, 1), s.asks(1, s.mutex, 1)
	s.grant(a)
	s.grant(b)
	s.finish()
	h := s.history()
	r := Judge(h, all...)
	require.Equal(t, Red, r.Verdict)
	replay, err := r.Save(t.TempDir(), h, all...)
	require.NoError(t, err)
	file := strings.TrimPrefix(replay, "make chaos-replay FILE=")
	again, err := history.ReadFiles(file)
	require.NoError(t, err)
	require.Equal(t, r.String(), Judge(again, all...).String())
	picture, err := os.ReadFile(filepath.Join(filepath.Dir(file), "linear-mutex-m.html"))
	require.NoError(t, err)
	require.Contains(t, string(picture), "acquire token")
	tap, err := history.ReadFiles(filepath.Join(filepath.Dir(file), TapFile))
	require.NoError(t, err)
	require.Equal(t, len(h.Commits()), len(tap.Commits()))
}
