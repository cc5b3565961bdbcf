package check

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/record"
)

// scenario is a sim whose steps a test decides, whether they keep the rules or not. Its
// semaphore and its limiter begin with a limit of 2, and its clients are c0 to c2.
type scenario struct {
	*sim
	sem, mutex *simGate
	keyed      *simGate // limited by a default of 2
	x, y       *simGate // keys of a limiter with a default of 2, and a total of 3
	total      *simGate
}

func newScenario() *scenario {
	s := &sim{now: 1_000_000, rev: 10, keys: map[string]history.KV{}, written: map[string]int64{}}
	s.pick = func(n int) int { return min(1, n-1) } // a limit of 2; no answer is lost
	s.begin()
	return &scenario{sim: s, sem: s.gates[0], mutex: s.gates[1], keyed: s.gates[2], x: s.gates[3], y: s.gates[4], total: s.gates[5]}
}

// asks is a call of client n with its request.
func (t *scenario) asks(n int, g *simGate, weight int64) *simCall {
	c := t.ask(t.clients[n], g, weight, true)
	t.advance(c)
	return c
}

// gives is a release from its first to its last step.
func (t *scenario) gives(c *simCall) {
	t.giveBack(c)
	t.advance(c)
}

// forget makes a call a matter of the past: finish leaves it alone.
func (t *scenario) forget(calls ...*simCall) {
	for _, c := range calls {
		c.state = "done"
	}
}

// askToStop has another session ask that a request end, and its session take note of that.
func (t *scenario) askToStop(r *simReq) {
	key := fmt.Sprintf("session/%016x/stop/%016x/%s", r.lease, r.token, url.PathEscape(r.key))
	t.commit(change{key: key, lease: r.lease, value: record.Notice{Cause: record.CauseStop}.Encode()})
	t.commit(change{key: key, del: true})
}

// storeLimit stores a limit as it is.
func (t *scenario) storeLimit(r record.Limit) {
	t.commit(change{key: "semaphore/a/limit", value: r.Encode()})
	t.sem.limit, t.sem.known = r.Limit, r.Through < t.rev
	t.admit(t.sem)
}

// last returns the last event of a kind.
func (t *scenario) last(kind history.Kind) *history.Event {
	for i := len(t.events) - 1; i >= 0; i-- {
		if t.events[i].Kind == kind {
			return &t.events[i]
		}
	}
	panic("no such event")
}

// callOf returns the event of a call.
func (t *scenario) callOf(c *simCall) *history.Event {
	return &t.events[slices.IndexFunc(t.events, func(e history.Event) bool { return e.Op == c.op && e.Kind == history.KindCall })]
}

func (t *scenario) set(name, value string) {
	t.emit(history.Event{Kind: history.KindSet, Name: name, Attr: map[string]string{"value": value}})
}

// putAgain writes a key once more.
func (t *scenario) putAgain(key string, lease int64) {
	t.commit(change{key: key, value: "again", lease: lease})
}

// closesWhileItReleases has a release of c0 fail before etcd confirms it, after a
// client began to close its session.
func (t *scenario) closesWhileItReleases(client int) {
	a := t.asks(0, t.sem, 1)
	t.grant(a)
	t.giveBack(a)
	t.emit(history.Event{Kind: history.KindCall, Client: t.clients[client].name, Op: 99, Name: history.Close, Lease: t.clients[client].lease})
	t.returned(a, history.Fail)
	t.remove(a.req, "released")
	t.forget(a)
	t.now += 2e9 // its lease continues, for Close did not reach etcd
}

// lateAfterStall has a call of c0 return too late, after a client's process stood
// still.
func (t *scenario) lateAfterStall(client string) {
	a := t.asks(0, t.sem, 1)
	t.events[slices.IndexFunc(t.events, func(e history.Event) bool { return e.Op == a.op && e.Kind == history.KindCall })].Until = t.now
	t.now += 3e9
	t.emit(history.Event{Kind: history.KindCount, Name: CountStall, N: 3e9, Client: client})
}

// reportedLate has a call return four seconds after it was admitted, of which something
// took that long.
func (t *scenario) reportedLate(counter string, took int64) {
	t.settle()
	t.mark(history.MarkHealthy)
	a := t.asks(0, t.sem, 1)
	t.now += 4e9
	t.emit(history.Event{Kind: history.KindCount, Name: counter, N: took})
	t.grant(a)
	t.skipHealthy = true
}

// goldenCase is a golden history of a few steps. killers are the rules that it breaks, as
// "checker/rule": none in a good history. Excused ones are in brackets.
type goldenCase struct {
	name    string
	killers string
	build   func(t *scenario)
}

// golden are all golden histories, by what they are about.
var golden = slices.Concat(goldenGood, goldenStore, goldenKeyed, goldenTotal, goldenShared, goldenBelief, goldenFence, goldenLive, goldenJobs, goldenRequests, goldenRates)

// brokenRules lists the rules that a history breaks, and in brackets those that are excused.
func brokenRules(r *Report) string {
	killers := r.Killers()
	for _, f := range r.Findings {
		if name := "(" + f.Checker + "/" + f.Rule + ")"; f.Level == Excused && !slices.Contains(killers, name) {
			killers = append(killers, name)
		}
	}
	return strings.Join(killers, " ")
}

// TestGolden: each checker finds what it is for, and nothing else does.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			s := newScenario()
			g.build(s)
			s.finish()
			h := s.history()
			r := Judge(h, all...)
			if got := brokenRules(r); got != g.killers {
				t.Errorf("killers %q, want %q\n%s\n%s", got, g.killers, r, dump(h))
			}
			if want := map[bool]Verdict{true: Green, false: Red}[len(r.Killers()) == 0]; r.Verdict != want {
				t.Errorf("verdict %s, want %s", r.Verdict, want)
			}
		})
	}
}

// TestEveryRuleCanFail: each rule that a checker's comment lists is broken by one
// of the golden histories, or by TestVerdicts.
func TestEveryRuleCanFail(t *testing.T) {
	t.Parallel()
	broken := map[string]bool{"store/tap": true, "linear/search": true}
	for _, g := range golden {
		for killer := range strings.FieldsSeq(g.killers) {
			broken[killer] = true
		}
	}
	for _, name := range rules(t) {
		if !broken[name] {
			t.Errorf("no golden history breaks %s", name)
		}
	}
}

// rules returns the rules that the checkers' comments list, as "checker/rule".
func rules(t *testing.T) (names []string) {
	rule := regexp.MustCompile(`(?m)^//\t([a-z]+)  +[a-z]`)
	for _, c := range all {
		source, err := os.ReadFile(c.Name() + ".go")
		require.NoError(t, err)
		doc, _, _ := strings.Cut(string(source), "\nfunc ")
		found := rule.FindAllStringSubmatch(doc, -1)
		require.NotEmpty(t, found, "the comment of %s lists no rules", c.Name())
		for _, m := range found {
			names = append(names, c.Name()+"/"+m[1])
		}
	}
	return names
}
