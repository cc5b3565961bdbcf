package console

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A page of many records has those on which the action can be made, however many others there are: of those whose processes
// live it shows as many again, and counts the rest (A318 in internal/proof/tested-failures.md).
func TestPageOfManyRecords(t *testing.T) {
	t.Parallel()
	lost, live := idempotency.Record{State: idempotency.Unknown}, idempotency.Record{State: idempotency.Unknown, Alive: true}
	working, done := idempotency.Record{State: idempotency.InProgress, Alive: true}, idempotency.Record{State: idempotency.Done}
	for name, tt := range map[string]struct {
		verb                 Verb
		of                   []idempotency.Record
		ready, shown, spared int
	}{
		"resolve a lost one":     {Resolve, []idempotency.Record{lost}, 1, 1, 0},
		"resolve a living one":   {Resolve, []idempotency.Record{live}, 0, 1, 0},
		"resolve no other state": {Resolve, []idempotency.Record{working, done}, 0, 0, 0},
		"delete":                 {Delete, []idempotency.Record{lost, done, working, live}, 2, 3, 0},
		"many living ones":       {Resolve, append(slicesOf(live, mostBulk+5), lost, lost), 2, mostBulk + 2, 5},
	} {
		p := bulkPage{Verb: tt.verb, Name: "orders"}
		for _, r := range tt.of {
			p.take(r)
		}
		require.Equal(t, []int{tt.ready, tt.shown, tt.spared}, []int{p.ready, len(p.Targets), p.Spared}, name)
		require.Len(t, strings.Fields(linesOf(p.Targets)), tt.ready, name)
	}
}

func slicesOf(r idempotency.Record, n int) (all []idempotency.Record) {
	for range n {
		all = append(all, r)
	}
	return all
}

// Of a process with more requests than a form has, those that wait are evicted first: the end of a holder would admit them.
func TestRequestsOfAProcess(t *testing.T) {
	t.Parallel()
	found := evictable(processView{
		holds: []processRequest{{Queue: "semaphore/a", Token: "1"}, {Queue: "rate/r", Token: "2"}}, waits: []processRequest{{Queue: "semaphore/b", Token: "3"}},
	})
	require.Len(t, found, 2, "shares of a rate are not evicted")
	require.Equal(t, []bulkTarget{{Name: "semaphore/b", Target: "3", What: "waits ", Waits: true}, {Name: "semaphore/a", Target: "1", What: "holds "}}, found)
}
