package alertday

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// caused is what the alerts of a row of docs/failure-modes.md are shown by: faults by name, or why none of them is that failure.
type caused struct {
	by  []string
	why string
}

func by(names ...string) caused { return caused{by: names} }

// Reasons for which a row has no fault of its own here.
const (
	byProcess = "only a process of its own can be stopped or suspended: as its session, which loses its lease"
	byLogin   = "a client with credentials logs in, and loses nothing: concurrency.TestAuthEnabledUnderASession"
	byHung    = "calls go to other members within half a second: internal/proof/hung measures it, concurrency.TestBlackHoledMember"
	byAlarm   = "no cluster raises it by itself in a day: writes are refused as when out of space; virtual.TestTickDuringAnAlarm"
	byStore   = "as any loss of a session, in all processes: TestRestoreFromABackup has the failure itself"
)

// rows are the rows of docs/failure-modes.md, by section and first cell.
var rows = map[string]caused{
	"etcd: one member is down or restarts":                                                    by("a member of etcd is down, and the leader moves"),
	"etcd: a member hangs: `a member of etcd does not answer while others do`":                {why: byHung},
	"etcd: the leader hangs or changes":                                                       by("a member of etcd is down, and the leader moves"),
	"etcd: ⚠ the leader was frozen beyond the TTL, or cut off beyond the margin":              {why: byProcess},
	"etcd: no majority, or all members unreachable":                                           by("etcd is away"),
	"etcd: out of space (`NOSPACE`)":                                                          by("etcd is out of space"),
	"etcd: the data of members differ (`CORRUPT`)":                                            {why: byAlarm},
	"etcd: a backup is restored":                                                              {why: byStore},
	"Between a process and etcd: cut off from all members: `the session lost its lease`":      by("a process is cut off"),
	"Between a process and etcd: its waiting calls":                                           by("a process is cut off"),
	"Between a process and etcd: etcd is back":                                                by("a process is cut off when its work is done, and returns"),
	"Between a process and etcd: its new calls":                                               by("a process is cut off"),
	"Between a process and etcd: its HTTP and gRPC limits":                                    by("etcd is away"),
	"Between a process and etcd: cut off just when the work is done":                          by("a process is cut off when its work is done, and returns"),
	"Between a process and etcd: `Release` returns an `*UnconfirmedError`":                    by("a process is cut off when its work is done, and returns"),
	"Between a process and etcd: cut off from one member, or from one that drops all traffic": by("a member of etcd is down, and the leader moves"),
	"Between a process and etcd: permission withdrawn, password changed, user deleted":        by("the permission of a process is withdrawn"),
	"Between a process and etcd: authentication is switched on":                               {why: byLogin},

	"A process: it crashed, or its machine is gone":                                                                 by("a process is killed"),
	"A process: no other request is admitted meanwhile":                                                             by("a process is killed"),
	"A process: it was paused beyond its deadline, for 7 s or more (SIGSTOP, garbage collection, frozen container)": by("a session loses its lease, and its permit"),
	"A process: ⚠ its virtual machine was paused with all of its clocks":                                            by("a session loses its lease, and its permit"),
	"A process: the machine was suspended":                                                                          by("a session loses its lease, and its permit"),
	"A process: work is stuck":                                                                                      by("work outlasts its MaxHold", "a permit is held for an hour", "a mutex is held"),
	"A process: a panic or `Goexit` in `Do`":                                                                        by("a function panics"),
	"A process: a leader is slow to stop, or never checks its context":                                              by("a leader that stops slowly is asked to step down"),
	"A process: a leader loses its term again and again":                                                            by("a leader loses its terms"),
	"A process: `Session.Close`, or SIGTERM handled by it":                                                          by("a process is stopped while it works"),

	"Limits and rates: the limit was lowered":                           by("a limit is lowered, and the demand fits", "holders are slow"),
	"Limits and rates: the limit is 0":                                  by("a semaphore is paused, and a request waits", "a semaphore is paused, and calls are refused", "a semaphore is paused, and calls wait for a second"),
	"Limits and rates: `*LimitMismatchError` at the start of a program": by("a process has another limit"),
	"Limits and rates: 429 `key-full`":                                  by("one client of a limiter asks for too much"),
	"Limits and rates: 503 `total-full`, `rate-exceeded`":               by("one client of a limiter asks for too much", "a rate is exceeded"),
	"Limits and rates: `ErrTooMany`":                                    by("a limiter has too many keys"),
	"Limits and rates: a rate is not used up although calls wait":       by("a rate is used up, by calls without a deadline"),
	"Limits and rates: etcd does not answer, and a rate":                by("etcd is away"),

	"Jobs: `a run was lost with its process`":                            by("a run is lost"),
	"Jobs: the process was stopped or cut off during a run":              by("a run is lost"),
	"Jobs: etcd was away when the run ended":                             by("etcd is away"),
	"Jobs: `the end of a run was not recorded before its session ended`": by("a run is lost"),
	"Jobs: etcd was away at the fire time":                               by("etcd is away"),
	"Jobs: the same, under `jobs run`":                                   by("no process calls a job"),
	"Jobs: no process was running":                                       by("no process has a job", "no process calls a job"),
	"Jobs: the job was paused, or still ran":                             by("a job is paused for a day", "a run lasts beyond the next tick"),
	"Jobs: the function runs longer than `AtMost`":                       by("a run outlasts AtMost"),
	"Jobs: the function failed or panicked":                              by("a job fails"),
	"Jobs: `*SettingsError`":                                             by("processes have different settings of a job"),
	"Jobs: out of space":                                                 by("etcd is out of space"),
	"Jobs: one clock is fast by more than the interval":                  by("a clock is ahead"),
	"Jobs: one clock is a day fast":                                      by("a clock is ahead"),
	"Jobs: ⚠ `Unlock`":                                                   by("an operator unlocks a run that hangs"),
	"Jobs: the lock or a record was changed by hand":                     by("the lock of a run is deleted"),

	"Requests: the process crashed during an attempt":                   by("the outcome of a lost attempt is unknown", "many of one scope are unknown", "no client repeats a lost attempt"),
	"Requests: the process was paused or cut off":                       by("no client repeats a lost attempt"),
	"Requests: the function failed, or answered 5xx":                    by("a function of a request fails or panics, and is executed again", "a function of a request fails under Refuse"),
	"Requests: the function panicked":                                   by("a function of a request fails or panics, and is executed again"),
	"Requests: it runs longer than `MaxExecution`":                      by("a request outlasts MaxExecution"),
	"Requests: etcd does not answer at the beginning":                   by("etcd is away"),
	"Requests: etcd does not answer at the end: `ErrNotRecorded`":       by("an outcome is not recorded"),
	"Requests: a result is too large, or its codec fails":               by("a result is too large"),
	"Requests: `ErrInvalid` for a payload or a result's type":           by("a payload cannot be compared"),
	"Requests: `ErrConflict`, `ErrInvalid` from `Commit` with `Attach`": by("a condition of a commit is not met"),
	"Requests: `ErrNearQuota`, `*ScopeFullError`":                       by("etcd is near its quota", "a scope is full"),
	"Requests: out of space":                                            by("etcd is out of space"),
	"Requests: `ErrUnreadable`":                                         by("a record cannot be read"),
	"Requests: records were deleted, or their leases revoked, by hand":  by("records are deleted by hand"),

	"By hand: ⚠ `Evict`, `TakeOver`, `ReleaseID`, `etcdkit evict --force`": by("an operator evicts a holder", "work continues after a loss", "another process releases a permit by its ID"),
	"By hand: `RequestStop`, `StepDown`, `etcdkit evict`":                  by("a holder is asked to release its permit", "a leader that stops slowly is asked to step down"),
	"By hand: ⚠ a lease is revoked":                                        by("a session loses its lease, and its permit"),
	"By hand: ⚠ a request's key is deleted":                                by("a request's key is deleted"),
	"By hand: ⚠ a limiter's request is deleted at its key alone":           by("a limiter's request is deleted at its key alone"),
	"By hand: the limit's key is deleted":                                  by("a limit's key is deleted"),
	"By hand: a key's own limit is deleted":                                by("a key's own limit is deleted"),
	"By hand: the limit's key is made unreadable":                          by("a limit's key cannot be read"),
	"By hand: foreign keys are put below the prefix":                       by("another program writes below the prefix"),
}

// failures returns the rows of docs/failure-modes.md, by section and first cell.
func failures(t *testing.T) (all []string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/failure-modes.md")
	require.NoError(t, err)
	section, head := "", true
	for line := range strings.Lines(string(page)) {
		switch {
		case strings.HasPrefix(line, "## "):
			section, head = strings.TrimSpace(line[3:]), true
		case strings.HasPrefix(line, "|--"):
			head = false
		case strings.HasPrefix(line, "| ") && !head:
			cell, _, _ := strings.Cut(line[2:], " | ")
			all = append(all, section+": "+cell)
		}
	}
	return all
}

// Each failure of the page is caused here, with exactly the alerts that are its, or none; or it is said why not. The alerts of
// each are printed.
func TestEachFailureIsCaused(t *testing.T) {
	t.Parallel()
	known := map[string]fault{}
	for _, f := range all() {
		require.NotContains(t, known, f.name)
		known[f.name] = f
	}
	page := failures(t)
	require.Greater(t, len(page), 60)
	for _, row := range page {
		of, ok := rows[row]
		require.True(t, ok, "no fault is said to be %q", row)
		require.NotEqual(t, len(of.by) > 0, of.why != "", row)
		var alerts []string
		for _, name := range of.by {
			f, ok := known[name]
			require.True(t, ok, "%s: there is no fault %q", row, name)
			alerts = append(alerts, f.fires...)
		}
		t.Logf("%s: %s%s", row, of.why, strings.Join(alerts, ", "))
	}
	for row := range rows {
		require.True(t, slices.Contains(page, row), "the page has no row %q", row)
	}
}
