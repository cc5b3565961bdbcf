package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func sample() report {
	return report{
		measured: measured{begun: time.Date(2026, 11, 27, 15, 4, 5, 0, time.UTC), seconds: 412.4, peak: 3 << 30, own: 700, busy: 730},
		commit:   "a12b2c2d3e4f",
		ended: []outcome{
			{step{target: "test"}, true, 240, 400, false},
			{step{target: "race", flags: "-short", out: []leftOut{{"./examples/fleet", "an example"}}}, false, 200, 300, false},
			{step{target: "bench-test", skip: "nothing has changed"}, true, 0, 0, false},
		},
		times: []times{{"test", "schedlock", 1, 1, 10}, {"race", "concurrency", 10, 5, 100}, {"test", "concurrency", 1, 2, 80}, {"test", "internal/queue", 0, 0, 0}},
	}
}

// The report has what a reader asks for, and the page that it is written to gives back what the next
// run needs: the slowest packages and the commit.
func TestReport(t *testing.T) {
	t.Parallel()
	text := sample().markdown()
	for _, want := range []string{
		"2026-11-27 15:04, a12b2c2d3e4f, on ", "**412 s**", "700 s of processor time beside 30 s of other processes", "at most 3.0 GiB",
		"| `test` | passed | 240 | 400 | 2 | 0 |", "| `race -short` | FAILED | 200 | 300 | 1 | 1 |", "| `bench-test` | left out: nothing has changed | 0 | 0 | 0 | 0 |",
		"| `concurrency` | `race` | 10.0 | 5.0 | 100.0 |",
	} {
		require.Contains(t, text, want)
	}
	page, err := between("# Page\n"+firstMark+"old\n"+lastMark+"rest\n", text)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(page, "# Page\n"+firstMark) && strings.HasSuffix(page, lastMark+"rest\n"), page)
	require.NotContains(t, page, "old")
	require.Equal(t, []string{"concurrency", "schedlock", "internal/queue"}, slowestOf(page))

	_, err = between("# Page\n", text)
	require.Error(t, err)
	require.Empty(t, slowestOf("# Page\n"))
}

// A subject is tested at the commit of a run that has tested it, whole; otherwise it keeps its commit.
func TestTestedAt(t *testing.T) {
	t.Parallel()
	before := map[string]string{"bench": "0123456789ab"}
	ran := func(o ...outcome) map[string]string {
		return report{commit: "a12b2c2d3e4f", ended: o}.testedNow(before)
	}
	good := outcome{step: step{target: "integration"}, passed: true}
	require.Equal(t, map[string]string{"bench": "0123456789ab", "browser": "a12b2c2d3e4f"}, ran(good))
	require.Equal(t, map[string]string{"bench": "0123456789ab", "alerts": "a12b2c2d3e4f"}, ran(outcome{step: step{target: "test"}, passed: true}))
	for name, change := range map[string]func(*outcome){
		"it has failed":                      func(o *outcome) { o.passed = false },
		"the tests were left out":            func(o *outcome) { o.flags = "-short -skip=" + browserTests },
		"the machine has no browser":         func(o *outcome) { o.skipped = true },
		"another target":                     func(o *outcome) { o.target = "race" },
		"the rules of alerts were left out":  func(o *outcome) { o.target, o.flags = "test", "-skip="+alertTests },
		"another step of make test":          func(o *outcome) { o.target, o.name = "test", "long" },
		"the whole step was left out by now": func(o *outcome) { o.skip = "nothing has changed" },
	} {
		o := good
		change(&o)
		require.Equal(t, before, ran(o), name)
	}
	require.Equal(t, before, report{commit: "a12b2c2d3e4f and changes", ended: []outcome{good}}.testedNow(before))
	r := sample()
	r.tested = ran(good)
	require.Equal(t, r.tested, testedAt(r.markdown()))
	r.tested = before
	require.Equal(t, before, testedAt(r.markdown()))
	require.Empty(t, testedAt("# Page\n"))
	require.Equal(t, map[string]string{"bench": "0123456789ab"}, testedAt("Last tested: bench at 0123456789ab, browser at none, gone at 0123456789ab.\n"))
	for _, s := range (&gate{}).plan(nil, nil, func(string) string { return "" }) {
		if s.waits && s.name == "" {
			require.Len(t, report{commit: "a12b2c2d3e4f", ended: []outcome{{step: s, passed: true}}}.testedNow(map[string]string{}), 1, "%s is a subject", s.target)
		}
	}
}
