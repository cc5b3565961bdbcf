package chaos

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// The short form of make chaos: a quarter of a minute, in which not every nemesis has its
// turn. CHAOS_SEED sets another seed.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	ownServers(t)
	seed := uint64(1)
	if s := os.Getenv("CHAOS_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	verdict := judged(t, Seed(seed))
	if verdict == check.Inconclusive {
		verdict = judged(t, Seed(seed+1))
	}
	if verdict == check.Inconclusive {
		// Nothing is known to be wrong: `make chaos` requires a run that shows it.
		t.Skip("this machine is too busy to keep etcd's time: two runs have shown nothing")
	}
	require.Equal(t, check.Green, verdict, "a broken rule is not a matter of time")
}

// judged makes a run and returns what the checkers say.
func judged(t *testing.T, seed Seed) check.Verdict {
	t.Logf("seed %d", seed)
	res, err := Run(context.Background(), Config{Seed: seed, Duration: 15 * time.Second, Progress: t.Logf})
	require.NoError(t, err)
	report, checkers, err := res.Judge()
	require.NoError(t, err)
	if report.Verdict != check.Green {
		replay, err := report.Save(os.TempDir(), res.History, checkers...)
		require.NoError(t, err)
		t.Logf("%v\nto judge it again: %s", report, replay)
	}
	return report.Verdict
}

// ownServers skips a test where embedtest uses servers of others.
func ownServers(t *testing.T) {
	t.Helper()
	if os.Getenv("EMBEDTEST_ENDPOINTS") != "" {
		t.Skip("an Env breaks its servers")
	}
}

// The seed alone decides what is done.
func TestSeedDecides(t *testing.T) {
	t.Parallel()
	draw := func(seed Seed) (all []string) {
		s := newSchedule(seed, Nemeses())
		for range 30 {
			st := s.next()
			all = append(all, st.String(), st.For.String())
		}
		r := seed.Stream("worker")
		for _, s := range Workloads() {
			for range 20 {
				all = append(all, s.Plan(r).Name)
			}
		}
		return all
	}
	require.Equal(t, draw(1), draw(1))
	require.NotEqual(t, draw(1), draw(2))
}

// A run in which nothing is harmed and nothing happens is green, and a run that has
// to contain harm and has none is void.
func TestVoid(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes a quarter of a minute")
	}
	ownServers(t)
	// No requests: the record of a lost attempt expires 15 s after its process has ended. TestChaos has them.
	workloads := slices.DeleteFunc(Workloads(), func(w Workload) bool { return w.Name() == new(Requests).Name() })
	res, err := Run(context.Background(), Config{Seed: 2, Duration: 2 * time.Second, Workloads: workloads, Nemeses: []Nemesis{}})
	require.NoError(t, err)
	report, _, err := res.Judge()
	require.NoError(t, err)
	require.Equal(t, check.Green, report.Verdict, "%v", report)
	demanding := history.NewRecorder()
	demanding.Set(check.RequirePrefix+effectCompactions, "1") // a lease may well expire on a busy machine
	more, err := demanding.History()
	require.NoError(t, err)
	res.History = history.Merge(res.History, more)
	report, _, err = res.Judge()
	require.NoError(t, err)
	require.Equal(t, check.Void, report.Verdict)
}
