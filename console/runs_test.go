package console

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/record"
)

// A410 in internal/proof/tested-failures.md: a job whose runs always fail, and of which one is active most of the time, was shown
// as running with nothing that wants an operator. A job that has failed runs alone, and has succeeded since, was no problem either.
func TestFailedRunBehindAnActiveOne(t *testing.T) {
	t.Parallel()
	f := fill(t)
	run := func(job string, minute int64, r record.Run) {
		r.Attempt, r.StartMS = max(r.Attempt, 1), minute*60_000
		rev := f.put(f.space.Job(job).Run(time.Unix(minute*60, 0)), r.Encode(), 0)
		if r.State == record.RunRunning {
			f.rev = rev - 1 // the lock is written with the record
			f.put(f.space.Job(job).Lock(), "", 7)
		}
	}
	run("export", 10, record.Run{State: record.RunFailed, Owner: "a", EndMS: 15 * 60_000, Error: "disk is full"})
	run("export", 20, record.Run{State: record.RunRunning, Owner: "b"})
	run("import", 10, record.Run{State: record.RunFailed, Owner: "a", EndMS: 15 * 60_000})
	run("import", 20, record.Run{State: record.RunDone, Owner: "b", EndMS: 25 * 60_000})
	run("first", 10, record.Run{State: record.RunRunning, Owner: "c"})
	rows := map[string]jobRow{}
	for _, r := range jobsOf(f.State) {
		rows[r.Name] = r
	}
	export := rows["export"]
	require.Equal(t, []any{running, record.RunFailed, "a", true, time.Unix(600, 0)}, []any{export.State, export.Outcome, export.Owner, export.Bad, export.Tick})
	require.Equal(t, marks{{"bad", "last run failed"}, {"ok", running}}, export.Marks)
	require.Equal(t, []any{running, running, "c", false}, []any{rows["first"].State, rows["first"].Outcome, rows["first"].Owner, rows["first"].Bad})
	var found []string
	for _, p := range problemsOf(nil, jobsAt(f.State, time.Unix(3600, 0)), nil, nil) {
		found = append(found, fmt.Sprint(p.Name, ": ", p.Text, " ", p.Since.Unix()))
	}
	require.Equal(t, []string{"export: last run failed 600", "import: 1 failed run 600"}, found)
}

// A411: an attempt that was lost, and after which the run was tried again, is in the metric of lost runs, and its alert led to a job
// with 0 lost runs. The page has each attempt with its process, and the problem has lasted since that tick.
func TestAttemptsThatWereLost(t *testing.T) {
	t.Parallel()
	f := fill(t)
	keys := f.space.Job("invoices")
	f.put(keys.Run(time.Unix(600, 0)), record.Run{State: record.RunDone, Attempt: 3, Owner: "c", StartMS: 620_000, EndMS: 625_000, Earlier: []record.Ended{
		{Attempt: 1, State: record.RunRunning, Owner: "a", StartMS: 600_000},
		{Attempt: 2, State: record.RunFailed, Owner: "b", StartMS: 610_000, EndMS: 611_000, Error: "disk is full"},
	}}.Encode(), 0)
	f.put(keys.Run(time.Unix(1200, 0)), record.Run{State: record.RunDone, Attempt: 1, Owner: "c", StartMS: 1200_000, EndMS: 1201_000}.Encode(), 0)
	j := f.Jobs["invoices"]
	var shown []string
	for _, r := range withSkipped(runsOf(j), 10*time.Minute) {
		shown = append(shown, fmt.Sprintf("%d.%d %s %s %s %s", r.Tick.Unix(), r.Attempt, r.State, r.Owner, r.Took, r.Error))
	}
	require.Equal(t, []string{"1200.1 done c 1s ", "600.3 done c 5s ", "600.2 failed b 1s disk is full", "600.1 lost a – " + lostWithout}, shown)
	row := jobsAt(f.State, time.Unix(1300, 0))[0]
	require.Equal(t, []any{1, 0, false}, []any{row.Lost, row.Failed, row.Bad})
	found := problemsOf(nil, []jobRow{row}, nil, nil)
	require.Equal(t, []any{"1 lost run", time.Unix(600, 0)}, []any{found[0].Text, found[0].Since})
	var said []string
	for _, finding := range jobFindings(f.State, nil, time.Unix(1300, 0)) {
		said = append(said, finding.Text)
	}
	require.Equal(t, []string{"job invoices: 0 of 2 stored runs were lost, and 1 attempt that was tried again", "1 job"}, said)
}

// A731: a run that was lost, or has failed, was a problem for as long as its record was kept, whatever had succeeded since.
func TestOldLossesAreNoProblem(t *testing.T) {
	t.Parallel()
	begun := time.Unix(0, 0).Add(1000 * time.Hour)
	for _, first := range []record.Run{{State: record.RunRunning}, {State: record.RunFailed, EndMS: begun.Add(time.Second).UnixMilli()}} {
		f := fill(t)
		put := func(n int, r record.Run) {
			at := begun.Add(time.Duration(n) * 3 * time.Hour)
			r.Owner, r.Attempt, r.StartMS = "web-7", 1, at.UnixMilli()
			if r.State == record.RunDone {
				r.EndMS = at.Add(time.Minute).UnixMilli()
			}
			f.put(f.space.Job("invoices").Run(at), r.Encode(), 0)
		}
		says := func(after time.Duration) (problems int, level doctor.Level) {
			now := begun.Add(after)
			return len(problemsOf(nil, jobsAt(f.State, now), nil, nil)), jobFindings(f.State, nil, now)[0].Level
		}
		expect := func(after time.Duration, problems int, level doctor.Level) {
			t.Helper()
			n, got := says(after)
			require.Equal(t, problems, n)
			require.Equal(t, level, got)
		}
		put(0, first)
		expect(30*time.Hour, 1, doctor.Warn)
		for n := 1; n < 10; n++ {
			put(n, record.Run{State: record.RunDone})
		}
		expect(23*time.Hour, 1, doctor.Warn)
		expect(30*time.Hour, 0, doctor.Note)
		row := jobsAt(f.State, begun.Add(30*time.Hour))[0]
		require.Equal(t, []int{1, 0}, []int{row.Lost + row.Failed, row.trouble()}, "the row still counts it")
	}
}

// A420: the owner of a run is found, also that of an attempt that was lost: a search said that nothing has it in an owner.
func TestSearchFindsOwnersOfRuns(t *testing.T) {
	t.Parallel()
	f := fill(t)
	keys := f.space.Job("invoices")
	f.put(keys.Run(time.Unix(600, 0)), record.Run{State: record.RunRunning, Attempt: 2, Owner: "web-7-x2x8z", StartMS: 610_000, Earlier: []record.Ended{
		{Attempt: 1, State: record.RunRunning, Owner: "web-6-k9k9k", StartMS: 600_000},
	}}.Encode(), 0)
	f.put(keys.Run(time.Unix(1200, 0)), record.Run{State: record.RunFailed, Attempt: 1, Owner: "web-8", StartMS: 1200_000, EndMS: 1201_000, Error: "disk is full"}.Encode(), 0)
	for text, want := range map[string]string{
		"x2x8z": "lost by web-7-x2x8z", "web-6-k9k9k": "lost by web-6-k9k9k", "DISK": "failed by web-8", "web-": "failed by web-8, and 2 runs before",
	} {
		found := search(f.State, f.space, text, nil)
		require.Len(t, found, 1, text)
		require.Equal(t, []any{"Runs of jobs", "invoices", want, text == "web-6-k9k9k"}, []any{found[0].Label, found[0].Rows[0].Name, found[0].Rows[0].What, found[0].Rows[0].exact})
	}
	require.Empty(t, search(f.State, f.space, "its process died", nil), "that is the console's word")
}
