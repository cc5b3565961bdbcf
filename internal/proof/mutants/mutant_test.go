package mutants

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func everyMutant(t *testing.T) []Mutant {
	t.Helper()
	all, err := All()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 45)
	return all
}

func TestHeads(t *testing.T) {
	t.Parallel()
	const edits = "\nIn: x, f\nFind: a\nPut: b\n"
	m, err := parse("m", "Rule: r\nId: M1\nChaos: 3 20\nKiller: store\n"+edits)
	require.NoError(t, err)
	require.Equal(t, 3, m.Seeds)
	require.Equal(t, "20s", m.For.String())
	require.Equal(t, []edit{{pkg: "x", decl: "f", find: "a", put: "b"}}, m.edits)
	m, err = parse("m", "Rule: r\nId: M1\nChaos: 3 20\nKiller: store\nGate: ./x TestX\n"+edits)
	require.NoError(t, err)
	require.Equal(t, [2]string{"./x", "TestX"}, m.Gate)
	for _, bad := range []string{
		"Rule: r\nId: M1\n", "Id: M1\nTest: ./x TestX\n", "Rule: r\nId: M1\nTest: ./x\n", "Rule: r\nId: M1\nChaos: 3 20\n",
		"Rule: r\nId: M1\nChaos: 3 20\nKiller: store\nTest: ./x TestX\n", "Rule: r\nId: M1\nTest: ./x TestX\nWhat: else\n",
		"Rule: r\nRule: r\nId: M1\nTest: ./x TestX\n", "Rule: r\nId: M1\nTest: ./x TestX\nno field\n", "\tindented\nRule: r\nId: M1\nTest: ./x TestX\n",
		"Rule: r\nId: M1\nTest: ./x TestX\nGate: ./x TestX\n", "Rule: r\nId: M1\nChaos: 3 20\nKiller: store\nGate: ./x\n",
	} {
		_, err := parse("m", bad+edits)
		require.Error(t, err, bad)
	}
}

func TestEditsOfAFile(t *testing.T) {
	t.Parallel()
	const head = "Rule: r\nId: M1\nTest: ./x TestX\n\n"
	m, err := parse("m", head+"In: x, f\nFind:\n\ta\n\t\tb\n\n\tc\nPut:\nFind: d\nPut: e: f\n\nIn: y/z, (*T[K, V]).g\nFind: h\nPut:\n\tone\n\ttwo\n")
	require.NoError(t, err)
	require.Equal(t, []edit{
		{pkg: "x", decl: "f", find: "a\n\tb\nc"},
		{pkg: "x", decl: "f", find: "d", put: "e: f"},
		{pkg: "y/z", decl: "(*T[K, V]).g", find: "h", put: "one\ntwo"},
	}, m.edits)
	for _, bad := range []string{
		"", "In: x, f\n", "In: x f\nFind: a\nPut: b\n", "Find: a\nPut: b\n", "In: x, f\nFind: a\n", "In: x, f\nFind:\nPut: b\n", "In: x, f\nPut: b\n",
		"In: x, f\nFind: a\nFind: b\nPut: c\n", "In: x, f\nFind: a\nPut: b\nPut: c\n", "In: x, f\nFind: a\nIn: y, g\nPut: b\n",
	} {
		_, err := parse("m", head+bad)
		require.Error(t, err, bad)
	}
}

// The test that is to notice exists: one that was renamed would pass.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	known := map[string]map[string]bool{} // the functions of a package's tests
	for _, m := range everyMutant(t) {
		for _, of := range [][2]string{{m.Package, m.Test}, m.Gate} {
			dir, test := of[0], of[1]
			if test == "" {
				continue
			}
			if known[dir] == nil {
				known[dir] = functions(t, filepath.Join("../../..", dir, "*_test.go"))
			}
			require.True(t, known[dir][test], "%s: %s has no %s", m.Name, dir, test)
		}
	}
}

// functions returns the names of the functions in some files.
func functions(t *testing.T, pattern string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}

// Rows of the two tables: of mutants that name a test, and of those that name a checker.
var (
	testRow    = regexp.MustCompile("(?m)^\\| `([a-z]\\d\\d+-[^`]+)` \\| (.*) \\| `([^`]+)` \\|$")
	checkerRow = regexp.MustCompile("(?m)^\\| `([a-z]\\d\\d+-[^`]+)` \\| (.*) \\| (.*) \\| \\d+ \\| (yes|no|by `[^`]+`) \\|$")
)

// The documentation's tables are those of the mutants.
func TestTable(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../mutants.md")
	require.NoError(t, err)
	tests, checkers := map[string][]string{}, map[string][]string{}
	for _, r := range checkerRow.FindAllStringSubmatch(string(doc), -1) {
		checkers[r[1]] = r[2:]
	}
	for _, r := range testRow.FindAllStringSubmatch(string(doc), -1) {
		tests[r[1]] = r[2:]
	}
	all := everyMutant(t)
	require.Equal(t, len(all), len(tests)+len(checkers))
	for _, m := range all {
		if m.Test != "" {
			require.Equal(t, []string{m.Rule, path.Base(m.Package) + "." + m.Test}, tests[m.Name], m.Name)
			continue
		}
		require.NotNil(t, checkers[m.Name], m.Name)
		require.Equal(t, m.Rule, checkers[m.Name][0], m.Name)
		require.Contains(t, strings.Split(checkers[m.Name][1], ", "), "`"+m.Killer+"`", m.Name)
		if m.Gate[1] == "" {
			require.Contains(t, []string{"yes", "no"}, checkers[m.Name][2], m.Name)
		} else {
			require.Equal(t, "by `"+path.Base(m.Gate[0])+"."+m.Gate[1]+"`", checkers[m.Name][2], m.Name)
		}
	}
}
