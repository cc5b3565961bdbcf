package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShortened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(`package a

import "testing"

func TestLong(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes an hour")
	}
}

func TestPart(t *testing.T) {
	seeds := 16
	if testing.Short() {
		seeds = 2
	}
	_ = seeds
}

func TestSub(t *testing.T) {
	t.Run("long", func(t *testing.T) {
		if testing.Short() {
			t.Skip("it takes an hour")
		}
	})
}

func TestQuick(t *testing.T) { t.Skip("always") }

func TestHelped(t *testing.T) { started(t) }

func started(t *testing.T) { f{}.processes(t) }

type f struct{}

func (f) processes(t *testing.T) {
	if testing.Short() {
		t.Skip("processes")
	}
}
`), 0o600))
	all, err := shortenedIn(dir)
	require.NoError(t, err)
	require.Equal(t, []shortened{{dir, "TestHelped", "processes"}, {dir, "TestLong", "it takes an hour"}, {dir, "TestPart", ""}, {dir, "TestSub", ""}}, all)
}

// unattributed returns the functions in the tests of a folder that ask testing.Short, and are neither tests nor
// called by a function there: a fuzz test, an example, one that is only passed on. A variable is "".
func unattributed(t *testing.T, dir string) (found []string) {
	t.Helper()
	funcs, err := functionsOf(dir)
	require.NoError(t, err)
	for _, f := range funcs {
		called := slices.ContainsFunc(funcs, func(caller function) bool { return slices.Contains(caller.calls, f.name) })
		if f.asks && !strings.HasPrefix(f.name, "Test") && !called {
			found = append(found, f.name)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			if of, ok := decl.(*ast.GenDecl); ok && declaresShort(of) {
				found = append(found, "")
			}
		}
	}
	return found
}

func declaresShort(decl *ast.GenDecl) (asks bool) {
	ast.Inspect(decl, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		asks = asks || ok && selects(call, "testing", "Short")
		return true
	})
	return asks
}

// What -short leaves out of a fuzz test, of an example, or by a variable is found, since no list has it.
func TestUnattributed(t *testing.T) {
	t.Parallel()
	const helper = "func h(t *testing.T) { _ = testing.Short() }"
	for source, want := range map[string][]string{
		"func TestX(t *testing.T) { _ = testing.Short() }": nil,
		"func TestX(t *testing.T) { h(t) }\n" + helper:     nil,
		"func TestX(t *testing.T) { do(t, h) }\n" + helper: {"h"},
		"func FuzzX(f *testing.F) { _ = testing.Short() }": {"FuzzX"},
		"func Example() { _ = testing.Short() }":           {"Example"},
		"var few = func() bool { return testing.Short() }": {""},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte("package a\n\nimport \"testing\"\n\n"+source+"\n"), 0o600))
		require.Equal(t, want, unattributed(t, dir), source)
	}
}

// helpersThatAsk returns the files of the main module that ask testing.Short and are no tests.
func helpersThatAsk(t *testing.T) (found []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || under(filepath.ToSlash(name), "demos", "bench", "integration") {
			return err
		}
		source, err := os.ReadFile(name)
		if strings.Contains(string(source), "testing.Short()") {
			found = append(found, filepath.ToSlash(name))
		}
		return err
	}))
	return found
}

// The list names each kind of what the gate leaves out.
func TestPrintLeftOut(t *testing.T) {
	t.Chdir("../../..")
	whole, err := wholeOnce()
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, printLeftOut(&out, thisTree(t), whole))
	for _, want := range []string{
		"test     ./concurrency: race runs it", "race     ./examples/fleet: ", "etcd37   ./console: ", "etcd37   ./internal/rank: it links neither",
		"race     concurrency.TestBlackHoledMember: it takes longer than a TTL", "bench    ", "browser  all tests (make browser), if neither console nor ",
		"alerts   TestRulesOfAlerts (make test), if neither docs/observability nor internal/proof/signals has changed",
		"if       ALERTS_DAY is not set: it takes minutes (make alerts-day): alertday.Test",
		"if       CONSOLE_AXE names no axe.min.js", "if       there is no Chromium", "if       curl is not installed: payments.Test",
	} {
		require.Contains(t, out.String(), want)
	}
}
