package check

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

var all = []Checker{Store{}, Belief{}, Fence{}, Linear{}, Live{}, Jobs{}, Requests{}, Rates{}}

// TestGoodHistoriesPass: no false alarms, whatever clients and nemeses do that
// keeps the rules.
func TestGoodHistoriesPass(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := simulate(rapid.IntRange(20, 120).Draw(t, "steps"), func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") })
		if r := Judge(h, all...); r.Verdict != Green {
			t.Fatalf("%s\n%s", r, dump(h))
		}
	})
}

func random(seed uint64) func(int) int {
	return rand.New(rand.NewPCG(seed, 0)).IntN
}

// TestLongGoodHistory is as long as that of a chaos run.
func TestLongGoodHistory(t *testing.T) {
	if testing.Short() {
		t.Skip("it judges a long history: 20 s with the race detector on a busy machine")
	}
	t.Parallel()
	h := simulate(8000, random(1))
	r := Judge(h, all...)
	if r.Verdict != Green {
		t.Fatal(r)
	}
	for _, name := range []string{EffectGrants, EffectExpiries, EffectEvictions, EffectUnknown, EffectLimits, EffectExcused, EffectStarts, EffectRetries, EffectAttempts, EffectReplays} {
		if r.Effects[name] == 0 {
			t.Errorf("no %s in a long history", name)
		}
	}
}

func dump(h *history.History) string {
	var b bytes.Buffer
	_ = h.Write(&b)
	return b.String()
}
