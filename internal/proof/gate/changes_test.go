package main

import (
	"maps"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A subject is tested if a file of its own differs, or a declaration that it may use; and not for a
// change within a function, in a comment, a test, or a package that it does not use.
func TestSubjects(t *testing.T) {
	t.Parallel()
	s := subject{files: []string{"bench", "go.mod"}, api: []string{"concurrency"}}
	base := map[string]string{
		"bench/main.go": "package main\n", "go.mod": "module m\n", "concurrency/internal/x/x.go": "package x\n\nfunc X() {}\n",
		"concurrency/a.go":      "package concurrency\n\n// Limit is.\ntype Limit struct {\n\tN int\n\tn int\n}\n\nfunc New(n int) *Limit { return nil }\n\nfunc hidden() {}\n",
		"concurrency/a_test.go": "package concurrency\n",
	}
	for name, tt := range map[string]struct {
		file, text string
		differs    bool
	}{
		"own file":              {"bench/main.go", "package main // changed\n", true},
		"new file of its own":   {"bench/new.txt", "new", true},
		"requirements":          {"go.mod", "module n\n", true},
		"exported field":        {"concurrency/a.go", "package concurrency\n\ntype Limit struct {\n\tN int64\n\tn int\n}\n\nfunc New(n int) *Limit { return nil }\n", true},
		"signature":             {"concurrency/a.go", "package concurrency\n\ntype Limit struct {\n\tN int\n}\n\nfunc New(n int64) *Limit { return nil }\n", true},
		"new declaration":       {"concurrency/b.go", "package concurrency\n\nconst C = 1\n", true},
		"body and comment":      {"concurrency/a.go", "package concurrency\n\n// Limit was.\ntype Limit struct {\n\tN int\n\tn string\n}\n\nfunc New(n int) *Limit { return &Limit{} }\n\nfunc other() {}\n", false},
		"test":                  {"concurrency/a_test.go", "package concurrency\n\nfunc TestX() {}\n", false},
		"internal package":      {"concurrency/internal/x/x.go", "package x\n\nfunc Y() {}\n", false},
		"another package":       {"schedlock/a.go", "package schedlock\n\nfunc New() {}\n", false},
		"name that begins like": {"bench2/main.go", "package main\n", false},
		"does not parse":        {"concurrency/b.go", "package", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := maps.Clone(base)
			now[tt.file] = tt.text
			require.Equal(t, !tt.differs, s.same(base, now))
			require.Equal(t, !tt.differs, s.same(now, base), "the other way")
		})
	}
	require.True(t, s.same(base, base))
}

// A commit that is none of this history, or none, leaves nothing out.
func TestUnknownCommit(t *testing.T) {
	t.Chdir("../../..")
	require.Empty(t, changes{}.reason("bench"))
	require.Empty(t, changes{last: map[string]string{"bench": "0000000000000000000000000000000000000000"}}.reason("bench"))
	require.Empty(t, changes{last: map[string]string{"browser": "HEAD"}}.reason("unknown"))
}

// wholeOnce has the subjects of this tree: the go command needs seconds of processor time to list their imports.
var wholeOnce = sync.OnceValues(wholeSubjects)

// What a subject's packages import of ours is part of it: internal packages as files, others by their
// declarations.
func TestImports(t *testing.T) {
	s := subject{files: []string{"console"}}.importing("fmt\n" + ours + "/internal/fleet\n" + ours + "/concurrency\n" + ours + "/console/x\n" + ours + "/internal/fleet\n")
	require.Equal(t, []string{"console", "internal/fleet"}, s.files)
	require.Equal(t, []string{"concurrency"}, s.api)
	t.Chdir("../../..")
	whole, err := wholeOnce()
	require.NoError(t, err)
	browser, bench, demos := whole["browser"], whole["bench"], whole["demos"]
	require.Subset(t, browser.files, []string{"console", "integration", "internal/fleet", "internal/proof/testkit"})
	require.Subset(t, browser.api, []string{"concurrency", "idempotency", "schedlock", "embedtest"})
	require.Subset(t, bench.files, []string{"bench", "internal/proof/procs"})
	require.Contains(t, bench.api, "concurrency")
	require.Subset(t, demos.files, []string{"demos", "internal/examples/program", "internal/examples/metrics", "internal/hostclock"})
	require.Subset(t, demos.api, []string{"concurrency", "embedtest", "exporter", "idempotency", "schedlock"})
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	for _, s := range subjects {
		require.Regexp(t, `(?m)^PARTS .* `+s.target+` `, string(makefile), "make verify runs it")
	}
}
