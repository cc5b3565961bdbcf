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
		"if       there is no tool: a.TestTool, a.TestVariable\n", out.String())
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
	t.Chdir("../../..")
	here, err := foldersOf(".")
	require.NoError(t, err)
	var found []string
	for _, dir := range here {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		files = slices.DeleteFunc(files, func(name string) bool { return !strings.HasSuffix(name, "_test.go") && !importsTesting(name) })
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, function := range untold(file) {
				found = append(found, name+": "+function)
			}
		}
	}
	require.Empty(t, found)
}
