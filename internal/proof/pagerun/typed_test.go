package pagerun

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

// calls returns the arguments of all calls of a program on all pages but the design notes, each once.
func calls(t *testing.T, program string) (all [][]string) {
	t.Helper()
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (strings.HasPrefix(name, ".") && name != "." || name == "bin" || name == "docs/design") {
			return fs.SkipDir
		}
		if path.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(root + name)
		require.NoError(t, err)
		for _, call := range pagecode.Parse(string(text)).Calls() {
			if args := call.Words[1:]; call.Words[0] == program && !slices.ContainsFunc(all, func(a []string) bool { return slices.Equal(a, args) }) {
				all = append(all, args)
			}
		}
		return nil
	}))
	return all
}

// typed runs a program in the folder of the repository, and returns what it prints. A make above this test has set
// variables for those below it, which are no reader's.
func typed(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = root
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "RERUN"}, name)
	})
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %q\n%s", program, args, out)
	return string(out)
}

// Each call of make that a page shows has targets and variables with which make knows what it would run; make alone
// lists what it can do.
func TestMake(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("there is no make")
	}
	all := calls(t, "make")
	require.Greater(t, len(all), 30)
	for _, args := range all {
		if len(args) == 0 {
			require.Contains(t, typed(t, "make"), "make demo ")
			continue
		}
		require.NotEmpty(t, typed(t, "make", append([]string{"-n"}, args...)...), args)
	}
}

// What pages say to look up with go doc is there, and go env knows what they ask for.
func TestGoDoc(t *testing.T) {
	t.Parallel()
	looked := 0
	for _, args := range calls(t, "go") {
		if len(args) > 1 && (args[0] == "doc" || args[0] == "env") {
			looked++
			require.NotEmpty(t, strings.TrimSpace(typed(t, "go", args...)), args)
		}
	}
	require.Greater(t, looked, 5)
}
