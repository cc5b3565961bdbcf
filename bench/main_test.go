package main

import (
	"bytes"
	"io"
	"os"
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
		if !strings.Contains(stdout.String(), "etcd 3.") || !strings.Contains(stderr.String(), "round 1 of 1") {
			t.Errorf("%s: standard output:\n%s\nstandard error:\n%s", name, &stdout, &stderr)
		}
	}
	page := filepath.Join(dir, "page.md")
	if err := os.WriteFile(page, []byte("above\n"+string(begin)+"former figures\n"+string(finish)+"below\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var pages [2]string
	for i := range pages {
		if err := run(t.Context(), []string{"docs", dir, page}, io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		pages[i] = string(text)
	}
	for _, want := range []string{"above\n", "| acquire and release a free permit, time | create + delete |", "(requests.svg)", "\nbelow\n"} {
		if !strings.Contains(pages[0], want) {
			t.Errorf("the page has no %q:\n%s", want, pages[0])
		}
	}
	if strings.Contains(pages[0], "former figures") || pages[0] != pages[1] {
		t.Errorf("the page, twice:\n%s\n%s", pages[0], pages[1])
	}
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"tables"}, {"table", "more"}, {"-rounds", "0", "table"}, {"-only", "no such group", "table"}, {"docs", "nowhere", "nothing"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
