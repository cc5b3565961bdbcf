package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A record that a wrong clock has made a day ahead counts when its time has come. Until then it was the latest run, success and
// tick of its job: no alert on the job could fire for a day, whatever became of it (A441 in internal/proof/tested-failures.md).
func TestTimesOfAWrongClock(t *testing.T) {
	t.Parallel()
	const hour, second = int64(time.Hour / time.Millisecond), int64(1000)
	run := func(at int64, state string) Run {
		return Run{State: state, Start: at + second, end: at + 2*second, mod: at}
	}
	ten, next := run(10*hour, "done"), run(34*hour, "done")
	jumped := Run{State: "done", Start: 10*hour + second, end: 34 * hour} // the clock was set forward during the run
	for name, c := range map[string]struct {
		runs                   map[int64]Run
		now                    int64
		next, lastRun, success int64
	}{
		"before it has come":      {map[int64]Run{10 * hour: ten, 34 * hour: next}, 13 * hour, 11 * hour, ten.Start, ten.end},
		"a minute before":         {map[int64]Run{10 * hour: ten, 34 * hour: next}, 34*hour - 50*second, 35 * hour, next.Start, next.end},
		"it is the only one":      {map[int64]Run{34 * hour: next}, 13 * hour, 0, 0, 0},
		"it has failed":           {map[int64]Run{10 * hour: ten, 34 * hour: run(34*hour, "failed")}, 13 * hour, 11 * hour, ten.Start, ten.end},
		"its end alone is wrong":  {map[int64]Run{9 * hour: run(9*hour, "done"), 10 * hour: jumped}, 13 * hour, 11 * hour, jumped.Start, 9*hour + 2*second},
		"its tick alone is right": {map[int64]Run{10 * hour: ten, 11 * hour: {State: "done", Start: 34 * hour, end: 34*hour + 1}}, 13 * hour, 11 * hour, ten.Start, ten.end},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.UnixMilli(c.now)
			j := &Job{Period: time.Hour, Runs: c.runs}
			h := j.History(now)
			require.Equal(t, []int64{c.next, c.lastRun, c.success}, []int64{h.Next, h.LastRun, h.Success})
			if c.next != 0 {
				after := max(c.now, c.next-1)
				require.Equal(t, []time.Time{time.UnixMilli((after/hour + 1) * hour)}, j.Upcoming(time.UnixMilli(after), 1))
			}
		})
	}
	old := &Job{Runs: map[int64]Run{10 * hour: ten, 11 * hour: run(11*hour, "failed")}}
	listed := &Job{Runs: map[int64]Run{11 * hour: run(11*hour, "failed")}}
	listed.inherit(old)
	require.Equal(t, ten.end, listed.History(time.UnixMilli(13*hour)).Success, "the record was removed beside a list")
	listed.Runs[12*hour] = run(12*hour, "done")
	listed.remove(12 * hour)
	require.Equal(t, 12*hour+2*second, listed.History(time.UnixMilli(13*hour)).Success, "the record was removed")
	listed.Runs[34*hour] = next
	listed.remove(34 * hour)
	require.Zero(t, listed.History(time.UnixMilli(13*hour)).Success)
	lost := &Job{Runs: map[int64]Run{34 * hour: {State: "running", Start: 34 * hour, mod: 7}}}
	require.Equal(t, 1, lost.History(time.UnixMilli(13*hour)).Lost, "a loss counts at once")
}
