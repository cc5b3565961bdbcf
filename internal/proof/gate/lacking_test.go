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

// A313: a test that is skipped where a tool or a variable is missing, or a command fails, is listed with its reason: by
// itself, by what it calls in its folder, and by a helper of another one.
func TestLacking(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"help/help.go": `package help

import (
	"os/exec"
	"testing"
)

func Tool(t testing.TB) { tool(t, "a") }

func tool(t testing.TB, name string) {
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("there is no tool: %v", err)
	}
}
`,
		"help/plain.go": "package help\n\nimport \"os/exec\"\n\nfunc Plain(t skipper) {\n\tif exec.Command(\"x\").Run() != nil {\n\t\tt.Skip(\"no test\")\n\t}\n}\n",
		"a/a_test.go": `package a

func TestTool(t *testing.T) { t.Run("sub", func(t *testing.T) { help.Tool(t) }) }

func TestPlain(t *testing.T) { help.Plain(t) }

func TestVariable(t *testing.T) { variable(t) }

func variable(t *testing.T) {
	if os.Getenv("A_DAY") == "" {
		t.Skip("A_DAY is not set")
	}
	help.Tool(t)
}

func TestNetwork(t *testing.T) {
	if out, err := exec.Command("go").CombinedOutput(); err != nil {
		t.Skipf("there is no network: %s", out)
	}
}

func TestShort(t *testing.T) {
	if testing.Short() {
		t.Skip("an hour")
	}
	_ = exec.Command("go").Run()
}

func TestExternal(t *testing.T) {
	if os.Getenv("EMBEDTEST_ENDPOINTS") != "" {
		t.Skip("the cluster is another's")
	}
	_, _ = exec.LookPath("x")
}

func TestFound(t *testing.T) {
	if missing, ok := errors.AsType[unavailable](run()); ok {
		t.Skipf("there is no server: %v", missing)
	}
}

func TestSystem(t *testing.T) {
	if err := run(); errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("this system cannot do it: %v", err)
	}
	switch err := run(); {
	case errors.Is(err, errors.ErrUnsupported):
		t.Skipf("nor this: %v", err)
	}
}

func TestChance(t *testing.T) {
	if n == 0 {
		t.Skip("asks for nothing")
	}
}
`,
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	t.Chdir(root)
	var out bytes.Buffer
	require.NoError(t, printLacking(&out, []string{"./a"}))
	require.Equal(t, "if       A_DAY is not set: a.TestVariable\n"+
		"if       there is no network: a.TestNetwork\n"+
		"if       there is no server: a.TestFound\n"+
		"if       there is no tool: a.TestTool, a.TestVariable\n", out.String())
}

// wordless returns the functions of a file that skip a test with a reason whose words only a run knows: no list could
// have them. The error of a cluster that is another's has its words, and no list has it.
func wordless(file *ast.File) (found []string) {
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if ok && selects(call, "", "Skip", "Skipf") && len(call.Args) > 0 && words(call.Args[0]) == "" && !about(call.Args[len(call.Args)-1], "ErrExternal") {
				found = append(found, fn.Name.Name)
			}
			return true
		})
	}
	return found
}

// A552: each test of this tree, of the benchmark and of the demos that is skipped says why in words that gate left-out prints.
func TestSkipsHaveWords(t *testing.T) {
	for body, want := range map[string]bool{
		"t.Skip(err)": true, "t.Skipf(reason)": true, "t.Skipf(\"%v\", err)": true, "t.Skip(\"\")": true, "t.Run(\"a\", func(t *testing.T) { t.Skip(missing) })": true,
		"t.Skip(\"there is no x\")": false, "t.Skipf(\"there is no %s\", x)": false, "tb.Skipf(\"%v\", ErrExternal)": false, "zap.Skip()": false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package a\n\nfunc F(t *testing.T) {\n"+body+"\n}\n", parser.SkipObjectResolution)
		require.NoError(t, err)
		require.Equal(t, want, wordless(file) != nil, body)
	}
	require.Empty(t, inTests(t, wordless))
}

// untold returns the functions of a test file, or of a helper, that look for a tool and neither skip the test nor fail it if
// it is missing.
func untold(file *ast.File) (found []string) {
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		looks, says := 0, false
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				for i := range n.List[:max(0, len(n.List)-1)] {
					if isCall(n.List[i], "exec", "LookPath") && isCall(n.List[i+1], "require", "NoError") {
						looks--
					}
				}
			case *ast.CallExpr:
				if selects(n, "exec", "LookPath") {
					looks++
				}
				says = says || selects(n, "", "Skip", "Skipf", "Fatal", "Fatalf")
			}
			return true
		})
		if looks > 0 && !says {
			found = append(found, fn.Name.Name)
		}
	}
	return found
}

// isCall reports whether a statement is a call of a function, or assigns what it returns.
func isCall(stmt ast.Stmt, x, name string) bool {
	var of ast.Expr
	switch stmt := stmt.(type) {
	case *ast.ExprStmt:
		of = stmt.X
	case *ast.AssignStmt:
		of = stmt.Rhs[0]
	}
	call, ok := of.(*ast.CallExpr)
	return ok && selects(call, x, name)
}

// A313: no test of this tree passes without a word where a tool is missing.
func TestToolsAreAskedFor(t *testing.T) {
	const head = "package a\n\nfunc F(t *testing.T) {\n"
	for body, silent := range map[string]bool{
		"if _, err := exec.LookPath(\"x\"); err != nil {\nt.Logf(\"not run\")\nreturn\n}\n":       true,
		"if _, err := exec.LookPath(\"x\"); err == nil {\nrequire.NoError(t, run())\n}\n":         true,
		"_, err := exec.LookPath(\"x\")\nif err != nil {\nreturn\n}\nrequire.NoError(t, run())\n": true,
		"if _, err := exec.LookPath(\"x\"); err != nil {\nt.Skip(\"there is no x\")\n}\n":         false,
		"_, err := exec.LookPath(\"x\")\nrequire.NoError(t, err)\n":                               false,
		"run()\n": false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", head+body+"}\n", parser.SkipObjectResolution)
		require.NoError(t, err)
		require.Equal(t, silent, untold(file) != nil, body)
	}
	require.Empty(t, inTests(t, untold))
}

// inTests returns what is found in the tests and their helpers of all modules, with the file before it.
func inTests(t *testing.T, find func(*ast.File) []string) (found []string) {
	t.Helper()
	t.Chdir("../../..")
	here, err := foldersOf(".")
	require.NoError(t, err)
	for _, dir := range here {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		files = slices.DeleteFunc(files, func(name string) bool { return !strings.HasSuffix(name, "_test.go") && !importsTesting(name) })
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, function := range find(file) {
				found = append(found, name+": "+function)
			}
		}
	}
	return found
}
