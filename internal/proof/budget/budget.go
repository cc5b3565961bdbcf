// Package budget measures what operations cost etcd, and holds a table of the
// documentation to what was measured. For tests.
package budget

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

// Load is requests by method, as embedtest's Client.Requests tells them.
type Load = map[string]int

// soon bounds what should happen at once.
const soon = 30 * time.Second

// Budget measures operations on a cluster of the test's own, and keeps what they cost as
// rows of a table. It is for one goroutine.
type Budget struct {
	t       testing.TB
	ctx     context.Context
	cluster *embedtest.Cluster
	rows    []string
}

// New returns a budget without rows.
func New(ctx context.Context, t testing.TB, c *embedtest.Cluster) *Budget {
	return &Budget{t: t, ctx: ctx, cluster: c}
}

func (b *Budget) revision() int64 {
	b.t.Helper()
	rev, err := b.cluster.Revision(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return rev
}

// Count asserts what an operation costs: the requests of one client, and etcd's Raft
// entries and revisions, exactly. What follows it in the background has time to come.
// Operations of one name cost the same.
func (b *Budget) Count(name string, c *embedtest.Client, want Load, entries, revisions int, operation func()) {
	b.t.Helper()
	c.ResetRequests()
	index, rev := b.cluster.RaftIndex(), b.revision()
	operation()
	var got Load
	same := func() bool {
		got = c.Requests()
		delete(got, "Watch.Cancel") // or the stream ends first
		return maps.Equal(want, got)
	}
	for end := time.Now().Add(soon); !same() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if !same() {
		b.t.Fatalf("requests of %s: %v, want %v", name, got, want)
	}
	if n := int(b.cluster.RaftIndex() - index); n != entries { //nolint:gosec // a small difference
		b.t.Fatalf("Raft entries of %s: %d, want %d", name, n, entries)
	}
	if n := int(b.revision() - rev); n != revisions {
		b.t.Fatalf("revisions of %s: %d, want %d", name, n, revisions)
	}
	if row := fmt.Sprintf("| %s | %s | %d | %d |", name, inWords(want), entries, revisions); !slices.Contains(b.rows, row) {
		b.rows = append(b.rows, row)
	}
}

// inWords tells requests as the tables do.
func inWords(l Load) string {
	var words []string
	for _, m := range [][2]string{
		{"LeaseGrant"}, {"LeaseRevoke"}, {"Range"}, {"LeaseTimeToLive"}, {"Put"}, {"Txn"}, {"Watch.Send", "watch"}, {"LeaseKeepAlive.Send", "renewal"},
		{"Watch", "Watch stream"}, {"LeaseKeepAlive", "LeaseKeepAlive stream"},
	} {
		if n := l[m[0]]; n > 0 {
			words = append(words, fmt.Sprint(n, " ", cmp.Or(m[1], m[0])))
		}
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

// Holds asserts that the first table of four columns below a heading of a file has the
// rows that were measured, and no others.
func (b *Budget) Holds(file, heading string) {
	b.t.Helper()
	doc, err := os.ReadFile(file) //nolint:gosec // a document of this repository
	if err != nil {
		b.t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n"+heading+"\n")
	_, table, _ := strings.Cut(section, "\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	slices.Sort(rows)
	slices.Sort(b.rows)
	if !slices.Equal(rows, b.rows) {
		b.t.Fatalf("the table below %q of %s does not have the rows that were measured:\n%s", heading, file, strings.Join(b.rows, "\n"))
	}
}
