package console

import (
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// A735: the page of many requests of queues with long names showed a form that was refused when it was sent: the browser encodes
// the names once more.
func TestFormOfLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("я", keyspace.MaxName/2)
	var all []bulkTarget
	for n := range mostBulk {
		all = append(all, bulkTarget{Name: "limiter/" + long + "/" + long, Target: strconv.Itoa(n + 1), Waits: true})
	}
	left := all
	for forms := 0; len(left) > 0; forms++ {
		require.Less(t, forms, 10)
		p := bulkPage{Targets: left}
		p.fit()
		require.NotEmpty(t, p.Targets)
		require.Equal(t, len(left), len(p.Targets)+p.Rest)
		left = left[len(p.Targets):]
		form := url.Values{"targets": {linesOf(p.Targets)}, "confirm": {long}, "reason": {strings.Repeat("я", 500)}, "do": {"evict"}, "process": {long}}
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		require.NoError(t, readForm(httptest.NewRecorder(), r))
		b := &bulk{verb: Evict, of: "process", name: "7"}
		require.NoError(t, b.targetsOf(r.PostFormValue("targets")))
		require.Len(t, b.targets, len(p.Targets))
	}
	short := bulkPage{Targets: []bulkTarget{{Name: "mutex/report", Target: "1"}}}
	short.fit()
	require.Zero(t, short.Rest)
	err := (&bulk{verb: Evict, of: "process", name: "7"}).targetsOf(linesOf(all))
	require.ErrorContains(t, err, "the form has 200 targets of ")
	require.ErrorContains(t, err, "196608 bytes")
}

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
