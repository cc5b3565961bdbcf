package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// One program is each of its mutants, and the product without one, whatever the functions that they change look like.
func TestTogether(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module m\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "main.go"), []byte(`package main

import "fmt"

var limit = 1

type list[E any] struct{ of []E }

func (l list[E]) first(_ int, or E) (got E, ok bool) {
	got = or
	if len(l.of) > 0 {
		got, ok = l.of[0], true
	}
	return
}

func last[K comparable, V any](from map[K]V, keys ...K) (v V) {
	for _, k := range keys {
		v = from[k]
	}
	return v
}

type counter struct{ n int }

func (*counter) says() string { return "counter" }

func (c *counter) count() {
	c.n++
}

func safe() (err any) {
	defer func() { err = recover() }()
	panic("original")
}

func main() {
	got, ok := list[string]{[]string{"a"}}.first(1, "b")
	c := &counter{}
	c.count()
	fmt.Print(got, ok, last(map[int]string{1: "x", 2: "y"}, 1, 2), c.says(), c.n, safe(), limit)
}
`), 0o600))
	change := func(name, decl, find, put string) Mutant {
		return Mutant{Name: name, edits: []edit{{pkg: ".", decl: decl, find: find, put: put}}}
	}
	both := change("both", "(*counter).count", "c.n++", "c.n += 5")
	both.edits = append(both.edits, edit{pkg: ".", decl: "counter.says", find: `"counter"`, put: `"both"`})
	all := []Mutant{
		change("or", "list.first", "len(l.of) > 0", "len(l.of) > 1"),
		change("not-ok", "list.first", "true", "false"),
		change("first", "last", "v = from[k]", "return from[k]"),
		change("two", "(*counter).count", "c.n++", "c.n += 2"),
		both,
		change("recovers", "safe", `"original"`, `"mutant"`),
		change("a-variable", "limit", "1", "2"),
	}
	overlay, alone, err := Together(all, root, t.TempDir())
	require.NoError(t, err)
	require.Equal(t, []string{"recovers", "a-variable"}, alone)
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", program, ".")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, want := range map[string]string{
		"no-mutant":  "atrueycounter1original1",
		"or":         "bfalseycounter1original1",
		"not-ok":     "afalseycounter1original1",
		"first":      "atruexcounter1original1",
		"two":        "atrueycounter2original1",
		"both":       "atrueyboth5original1",
		"recovers":   "atrueycounter1original1",
		"a-variable": "atrueycounter1original1",
	} {
		as := filepath.Join(dir, name, "program")
		require.NoError(t, os.Mkdir(filepath.Dir(as), 0o700))
		require.NoError(t, os.Link(program, as))
		out, err := exec.CommandContext(t.Context(), as).CombinedOutput()
		require.NoError(t, err)
		require.Equal(t, want, string(out), name)
	}
}
