package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A package is left out of the race detector's run only if nothing in it or in its tests can race.
func TestRunsAlone(t *testing.T) {
	t.Parallel()
	const alone = "package a\n\nimport \"strings\"\n\nfunc F(s string) string { return strings.ToUpper(s) }\n"
	for name, text := range map[string]string{
		"a goroutine":   "package a\n\nfunc g() { go F(\"\") }\n",
		"a channel":     "package a\n\nvar c chan int\n",
		"a select":      "package a\n\nfunc g() { select {} }\n",
		"a lock":        "package a\n\nimport \"sync\"\n\nvar mu sync.Mutex\n",
		"an atomic":     "package a\n\nimport \"sync/atomic\"\n\nvar n atomic.Int64\n",
		"a context":     "package a\n\nimport \"context\"\n\nvar ctx context.Context\n",
		"no Go":         "package",
		"a timer":       "package a\n\nimport \"time\"\n\nfunc g() { time.AfterFunc(1, func() {}) }\n",
		"a group":       "package a\n\nimport \"golang.org/x/sync/errgroup\"\n\nvar g errgroup.Group\n",
		"an iterator":   "package a\n\nimport \"iter\"\n\nfunc g(s iter.Seq[int]) { _, _ = iter.Pull(s) }\n",
		"an assignment": "package a\n\nvar n int\n\nfunc g() { n = 1 }\n",
		"an element":    "package a\n\nvar m = map[string][]int{}\n\nfunc g() { m[\"\"][0]++ }\n",
		"a field":       "package a\n\nvar v struct{ n int }\n\nfunc g() { v.n += 2 }\n",
		"an address":    "package a\n\nvar n int\n\nfunc g() *int { return &n }\n",
		"a pointer":     "package a\n\nvar n = new(int)\n\nfunc g() { (*n) = 1 }\n",
		"a deletion":    "package a\n\nvar m map[int]int\n\nfunc g() { delete(m, 1) }\n",
		"a copy":        "package a\n\nvar s []int\n\nfunc g() { copy(s[1:], []int{1}) }\n",
		"a loop":        "package a\n\nvar n int\n\nfunc g() { for n = range 3 {\n} }\n",
		"nothing of it": "package a\n",
		"only reads":    "package a\n\nvar n, _ = 1, 2\n\nfunc g() int { m := n; m++; for i := range m { m = i }; return m }\n",
	} {
		for _, file := range []string{"b.go", "b_test.go"} {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte(alone), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			require.Equal(t, name == "nothing of it" || name == "only reads", runsAlone(dir), "%s in %s", name, file)
		}
	}
}
