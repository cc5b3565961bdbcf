package main

import (
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

func TestMain(m *testing.M) { progtest.Main(m, main) }

// Two processes call for each of four fire times. One of the two runs it; on a machine that
// is stopped for longer than an interval, neither may.
func TestRun(t *testing.T) {
	p := progtest.New(t)
	p.Ends(0, ": ran\n")
	ticks := map[string]bool{}
	runs := strings.Split(strings.TrimSpace(p.Out.String()), "\n")
	for _, run := range runs {
		tick, by, _ := strings.Cut(run, " run by ")
		if ticks[tick] || by != "A done" && by != "B done" {
			t.Errorf("%q: want each fire time once, done by one of two processes", runs)
		}
		ticks[tick] = true
	}
	if len(runs) > 4 {
		t.Errorf("%d runs, want up to 4:\n%s", len(runs), &p.Out)
	}
	if started := strings.Count(p.Err.String(), ": ran\n"); started != len(runs) {
		t.Errorf("%d started, %d in the history\n%s", started, len(runs), &p.Err)
	}
}

// F14: with no etcd there, the program ends by itself and says why.
func TestWithoutEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits as long as the program does: 5 s")
	}
	progtest.WithoutEtcd(t, run)
}
