package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// The doctor of the console finds in a namespace what that of the command finds (A190 in internal/proof/tested-failures.md).
func TestFindingsOfANamespace(t *testing.T) {
	t.Parallel()
	f := fill(t)
	now := time.UnixMilli(10 * 3600_000)
	warnings := func() (out []string) {
		f.Settle(now.UnixMilli())
		for _, found := range namespaceFindings(f.State, f.space, 9, now) {
			require.Equal(t, found.Level == doctor.OK, found.Advice == "", found.Text)
			if found.Level != doctor.OK && found.Level != doctor.Note {
				out = append(out, found.Check+": "+found.Text)
			}
		}
		return out
	}
	require.Equal(t, []string{"sessions: no live session"}, warnings())
	f.put(f.space.Session(9).Alive(), record.Clock{Owner: "console", AtMS: 1}.Encode(), 9)
	require.Equal(t, []string{"sessions: no live session"}, warnings(), "that of the console is none")
	f.put(f.space.Session(7).Alive(), record.Clock{Owner: "web-7", AtMS: 1}.Encode(), 7)
	require.Empty(t, warnings())

	charge := f.space.Queue(keyspace.Semaphore, "charge")
	f.put(charge.Limit, record.Limit{Limit: 0}.Encode(), 0)
	f.request(charge, 1, 50)
	f.put(f.space.Queue(keyspace.Mutex, "report").Range+"queue/stray", "x", 0)
	api := f.space.Limiter("api")
	f.put(api.Default, record.Limit{Limit: 0}.Encode(), 0)
	f.request(api.Key("acme"), 1, 50) // paused by the default, which is a finding of its own
	job := f.space.Job("invoices")
	f.put(job.Run(time.Unix(600, 0)), record.Run{State: record.RunRunning, Attempt: 1, Owner: "web-7", StartMS: 600_000}.Encode(), 0)
	f.put(job.Pause(), record.Pause{By: "ada", Reason: "moving", AtMS: 9 * 3600_000}.Encode(), 0)
	f.put(job.Range+"stray", "x", 0)
	f.put(f.space.Root()+"elsewhere", "x", 0)
	for i, state := range []record.Attempt{{State: record.AttemptWorking, Refuse: true, Number: 1}, {State: record.AttemptDone, Number: 1}} {
		f.put(f.space.Store("orders").Entry("acme", "POST /payments", fmt.Sprint(i)).Record, state.Encode(), 0)
	}
	require.Equal(t, []string{
		`keys: foreign keys (1): "elsewhere"`, "queues: limiter/api: its keys are paused by a default limit of 0", `queues: mutex/report: 1 foreign key: "/etcdkit/v1/shop/mutex/report/queue/stray"`,
		"queues: semaphore/charge: paused by a limit of 0, 1 wait", "jobs: job invoices: 1 foreign key", "jobs: job invoices: paused by ada for 1h0m0s: moving",
		"jobs: job invoices: 1 of 1 stored runs were lost", "requests: store orders: 1 of 2 requests have an unknown outcome",
	}, warnings())
	require.Equal(t, `'it'\''s'`, quoted("it's"))
}

// What a large queue has since it was settled last is not foreign: an operator deletes what the doctor names.
func TestFindingsOfAnUnsettledQueue(t *testing.T) {
	t.Parallel()
	f := fill(t)
	now := time.UnixMilli(10 * 3600_000)
	charge := f.space.Queue(keyspace.Semaphore, "charge")
	f.put(charge.Limit, record.Limit{Limit: 1}.Encode(), 0)
	f.put(charge.Range+"queue/stray", "x", 0)
	f.request(charge, 1, 50)
	f.Settle(now.UnixMilli())
	f.request(charge, 2, 51)
	f.request(charge, 1, 50) // put again
	for _, found := range namespaceFindings(f.State, f.space, 9, now) {
		if strings.HasPrefix(found.Text, "semaphore/charge: ") && strings.Contains(found.Text, "foreign") {
			require.Contains(t, found.Text, "1 foreign key:")
			require.Contains(t, found.Text, "stray")
			return
		}
	}
	t.Fatal("the foreign key is not found")
}
