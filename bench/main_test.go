package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/bench/servers"
	"github.com/etcdkit/etcdkit/bench/work"
	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) {
	servers.Main()
	work.Main()
	embedtest.Main(m)
}

// One group is measured, printed, written, and put into a page with its plot; a second time changes
// nothing.
func TestFromCellsToPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, args := range map[string][]string{
		"table": {"-only", "^acquire and release a free permit", "table"},
		"scale": {"-only", "^idempotent requests in flight", "scale"},
	} {
		var stdout, stderr bytes.Buffer
		args = append([]string{"-rounds", "1", "-benchtime", "20ms", "-dir", dir, "-out", filepath.Join(dir, name+".jsonl")}, args...)
		if err := run(t.Context(), args, &stdout, &stderr); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, &stderr)
		}
		if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("REDIS_ADDR") == "" && !strings.Contains(stderr.String(), "rows with Redis have no figures: no redis-server in PATH") {
			t.Errorf("%s: that Redis is missing is not said: %s", name, &stderr)
		}
		if !strings.Contains(stdout.String(), "etcd 3.") || !strings.Contains(stderr.String(), "round 1 of 1") {
			t.Errorf("%s: standard output:\n%s\nstandard error:\n%s", name, &stdout, &stderr)
		}
	}
	var shown bytes.Buffer
	if err := run(t.Context(), []string{"show", filepath.Join(dir, "table.jsonl")}, &shown, io.Discard); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]bool{"create + delete": true, "acquire and release a free permit  ": true, "floor": false} {
		if strings.Contains(shown.String(), what) != want {
			t.Errorf("what is shown has %q, or lacks it:\n%s", what, &shown)
		}
	}
	table := filepath.Join(dir, "table.jsonl")
	var pairs bytes.Buffer
	if err := run(t.Context(), []string{"pairs", table, table}, &pairs, io.Discard); err != nil || !strings.Contains(pairs.String(), "  1×") {
		t.Errorf("a build beside itself: %v\n%s", err, &pairs)
	}
	page, users := filepath.Join(dir, "page.md"), filepath.Join(dir, "users.md")
	for _, file := range []string{page, users} {
		if err := os.WriteFile(file, []byte("above\n"+string(begin)+"former figures\n"+string(finish)+"below\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var pages [2]string
	for i := range pages {
		if err := run(t.Context(), []string{"docs", dir, page, users}, io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
		pages[i] = contents(t, page)
	}
	forUsers := contents(t, users)
	if !strings.Contains(forUsers, "\n| acquire and release a free permit | ") || !strings.HasPrefix(forUsers, "above\n") || !strings.HasSuffix(forUsers, "below\n") ||
		strings.Contains(forUsers, "former figures") || strings.Contains(forUsers, "per second") { // of requests nothing was measured
		t.Errorf("the page for users:\n%s", forUsers)
	}
	for _, want := range []string{"above\n", "| acquire and release a free permit, time | create + delete |", "(requests.svg)", "\n| idempotent requests in flight | per s |", "\nbelow\n"} {
		if !strings.Contains(pages[0], want) {
			t.Errorf("the page has no %q:\n%s", want, pages[0])
		}
	}
	if strings.Contains(pages[0], "former figures") || pages[0] != pages[1] {
		t.Errorf("the page, twice:\n%s\n%s", pages[0], pages[1])
	}
}

func contents(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The page for users has figures of cells that there are, and ratios only of cells of one group, which are measured
// one after the other.
func TestSummaries(t *testing.T) {
	t.Parallel()
	groupOf := map[string]string{}
	for _, g := range work.Table(work.Setup{}) {
		for _, c := range g.Compare {
			groupOf[c.Of], groupOf[c.Against] = g.Name, g.Name
		}
	}
	for _, s := range summaries() {
		for _, l := range s.rows {
			if len(l.cells) != len(s.head)-1 {
				t.Errorf("%s: %d cells below %q", l.label, len(l.cells), s.head)
			}
			for _, e := range l.cells {
				if e != no && groupOf[e.of] == "" {
					t.Errorf("%s: no cell is called %q", l.label, e.of)
				}
				if e.against != "" && groupOf[e.against] != groupOf[e.of] {
					t.Errorf("%s: %q is not in the group of %q", l.label, e.against, e.of)
				}
			}
		}
	}
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"tables"}, {"table", "more"}, {"-rounds", "0", "table"}, {"-only", "no such group", "table"}, {"docs", "nowhere", "nothing"}, {"docs", "a", "b", "c", "d"}, {"show", "nothing"}, {"pairs", "a"}, {"pairs", "a", "b"}, {"pairs", "a", "b", "c"}, {"scaling-page", "nowhere", "nothing"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
