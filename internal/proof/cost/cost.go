// Package cost measures what operations cost etcd, and checks a table of the documentation
// against what was measured. For tests.
package cost

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
)

// Load is requests by method, as embedtest's Client.Requests counts them.
type Load = map[string]int

// soon bounds what should happen within milliseconds.
const soon = 30 * time.Second

// Table measures operations on a cluster of the test's own, and keeps their cost as
// rows of a table. It is for one goroutine.
type Table struct {
	tb      testing.TB
	ctx     context.Context
	cluster *embedtest.Cluster
	rows    []string
}

// New returns a table without rows.
func New(ctx context.Context, tb testing.TB, cluster *embedtest.Cluster) *Table {
	return &Table{tb: tb, ctx: ctx, cluster: cluster}
}

func (t *Table) revision() int64 {
	t.tb.Helper()
	rev, err := t.cluster.Revision(t.ctx)
	if err != nil {
		t.tb.Fatal(err)
	}
	return rev
}

// Started waits until the session of each client has sent what it sends when it starts: the list of its own
// range and the first renewal, which come after NewSession has returned.
func (t *Table) Started(clients ...*embedtest.Client) {
	t.tb.Helper()
	for _, c := range clients {
		for end := time.Now().Add(soon); c.Requests()["Range"] == 0 || c.Requests()["LeaseKeepAlive.Send"] == 0; {
			if time.Now().After(end) {
				t.tb.Fatalf("a session has sent no more than %v", c.Requests())
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// Count asserts what an operation costs: the requests of one client, and etcd's Raft
// entries and revisions, exactly. It waits for requests that the operation leaves to the background.
// Operations of one name cost the same.
func (t *Table) Count(name string, client *embedtest.Client, want Load, entries, revisions int, operation func()) {
	t.tb.Helper()
	client.ResetRequests()
	index, rev := t.cluster.RaftIndex(), t.revision()
	operation()
	var got Load
	same := func() bool {
		got = client.Requests()
		delete(got, "Watch.Cancel") // or the stream ends first
		return maps.Equal(want, got)
	}
	for end := time.Now().Add(soon); !same() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if !same() {
		t.tb.Fatalf("requests of %s: %v, want %v", name, got, want)
	}
	if n := int(t.cluster.RaftIndex() - index); n != entries { //nolint:gosec // a small difference
		t.tb.Fatalf("Raft entries of %s: %d, want %d", name, n, entries)
	}
	if n := int(t.revision() - rev); n != revisions {
		t.tb.Fatalf("revisions of %s: %d, want %d", name, n, revisions)
	}
	if row := fmt.Sprintf("| %s | %s | %d | %d |", name, inWords(want), entries, revisions); !slices.Contains(t.rows, row) {
		t.rows = append(t.rows, row)
	}
}

// inWords names requests as the tables do.
func inWords(l Load) string {
	var words []string
	for _, m := range [][2]string{
		{"LeaseGrant"}, {"LeaseRevoke"}, {"MemberList"}, {"Range"}, {"LeaseTimeToLive"}, {"Put"}, {"Txn"}, {"Watch.Send", "watch"}, {"LeaseKeepAlive.Send", "renewal"},
		{"Watch", "Watch stream"}, {"LeaseKeepAlive", "LeaseKeepAlive stream"},
	} {
		if n := l[m[0]]; n > 0 {
			words = append(words, fmt.Sprint(n, " ", cmp.Or(m[1], m[0])))
		}
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

// CheckDoc asserts that the first table of four columns below a heading of a file has the
// rows that were measured, and no others.
func (t *Table) CheckDoc(file, heading string) {
	t.tb.Helper()
	doc, err := os.ReadFile(file) //nolint:gosec // a document of this repository
	if err != nil {
		t.tb.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n"+heading+"\n")
	_, table, _ := strings.Cut(section, "\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	slices.Sort(rows)
	slices.Sort(t.rows)
	if !slices.Equal(rows, t.rows) {
		t.tb.Fatalf("the table below %q of %s does not have the rows that were measured:\n%s", heading, file, strings.Join(t.rows, "\n"))
	}
}
