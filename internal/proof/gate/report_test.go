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
			{step{target: "test"}, true, 240, 400},
			{step{target: "race", flags: "-short", out: []leftOut{{"./examples/fleet", "an example"}}}, false, 200, 300},
			{step{target: "bench-test", skip: "nothing has changed"}, true, 0, 0},
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
	require.Equal(t, "a12b2c2d3e4f", lastGreen(page))

	require.Equal(t, "    make test   # all, 4 minutes on two cores; 3 minutes\n", sample().withMinutes("    make test   # all, 17 minutes on two cores; 3 minutes\n"))

	_, err = between("# Page\n", text)
	require.Error(t, err)
	require.Empty(t, slowestOf("# Page\n"))
	require.Empty(t, lastGreen("# Page\n"))
	changed := sample()
	changed.commit += " and changes"
	require.Empty(t, lastGreen(changed.markdown()), "what was green is no commit")
}
