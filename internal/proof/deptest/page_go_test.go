package deptest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

// A pageFrame is what a reader of a page has around its fragments of Go.
type pageFrame struct {
	module string // the folder of the module that has what they import; empty for this one
	vars   string
}

// pageFrames are the frames of the pages whose Go code is not part of a test or an example.
var pageFrames = map[string]pageFrame{
	"docs/console.md": {vars: `sess *concurrency.Session; mux *http.ServeMux; isOperator func(*http.Request) bool
		userOf func(*http.Request) string; requireLogin func(http.Handler) http.Handler`},
	"docs/integrations.md": {module: "integration", vars: `store *idempotency.Store; tenant func(*http.Request) string; mux *http.ServeMux; server any
		payv1connect struct{ NewPaymentsHandler func(any) (string, http.Handler); PaymentsBalanceProcedure string } // generated code`},
	"docs/observability.md": {vars: `ctx context.Context; client *clientv3.Client`},
	"docs/operations.md": {vars: `ctx context.Context; sess *concurrency.Session; key []byte; ours *tls.Config
		secret, url string; encryption idempotency.Codec; order struct{ ID string }; body io.Reader`},
	"examples/quickstart/README.md": {vars: `run func(context.Context, *clientv3.Client) error`},
	"docs/options.md":               {vars: `endpoints []string; logger *zap.Logger`},
}

// imported are the packages that the pages call by these names, beside ours and those of one word.
var imported = map[string]string{
	"clientv3": "go.etcd.io/etcd/client/v3", "http": "net/http", "tls": "crypto/tls", "signal": "os/signal",
	"zap": "go.uber.org/zap", "zapcore": "go.uber.org/zap/zapcore", "prometheus": "github.com/prometheus/client_golang/prometheus",
	"echo": "github.com/labstack/echo/v4", "runtime": "github.com/grpc-ecosystem/grpc-gateway/v2/runtime",
}

// importPath returns the path of a package by its name, given the folders of ours.
func importPath(name string, folders []string) string {
	for _, dir := range folders {
		if path.Base(dir) == name {
			return module + "/" + dir
		}
	}
	return cmp.Or(imported[name], name)
}

// framed returns a fragment as declarations: as it is, as a variable, or as the body of a function.
func framed(b pagecode.Block, page string) (string, error) {
	mark := fmt.Sprintf("//line %s:%d\n", page, b.Line)
	parse := func(text string) (*ast.File, error) {
		return parser.ParseFile(token.NewFileSet(), "", text, 0)
	}
	if _, err := parse("package p\n" + b.Text); err == nil {
		return mark + b.Text, nil
	}
	if _, err := parser.ParseExpr(b.Text); err == nil {
		return "var _ =\n" + mark + b.Text, nil
	}
	file, err := parse("package p; func _() {\n" + b.Text + "}")
	if err != nil {
		return "", err
	}
	var uses strings.Builder
	for _, statement := range file.Decls[0].(*ast.FuncDecl).Body.List {
		if define, ok := statement.(*ast.AssignStmt); ok && define.Tok == token.DEFINE {
			for _, name := range define.Lhs {
				if id := name.(*ast.Ident); id.Name != "_" {
					fmt.Fprintf(&uses, "_ = %s\n", id.Name)
				}
			}
		}
	}
	return "func _() {\n" + mark + b.Text + uses.String() + "}\n", nil
}

// source returns a file with the fragments of a page within their frame, and the imports that they need.
func (f pageFrame) source(page string, blocks []pagecode.Block, folders []string) (string, error) {
	body := "\nvar (\n" + f.vars + "\n)\n"
	for _, b := range blocks {
		text, err := framed(b, page)
		if err != nil {
			return "", fmt.Errorf("%s:%d: %w", page, b.Line, err)
		}
		body += text
	}
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+body, 0)
	if err != nil {
		return "", err
	}
	unresolved, paths := map[*ast.Ident]bool{}, map[string]bool{}
	for _, id := range file.Unresolved {
		unresolved[id] = true
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := s.X.(*ast.Ident); ok && unresolved[id] {
				paths[id.Name+" \""+importPath(id.Name, folders)+"\""] = true
			}
		}
		return true
	})
	return "package p\nimport (\n" + strings.Join(slices.Sorted(maps.Keys(paths)), "\n") + "\n)\n" + body, nil
}

// compile compiles the sources of one module as packages of their own, which only the compiler sees. A name is that of
// a page, or of a package and one of its files, as in "a|b.go".
func compile(t *testing.T, dir string, sources map[string]string) error {
	t.Helper()
	temp, replace, packages := t.TempDir(), map[string]string{}, []string{}
	for name, source := range sources {
		name, of, _ := strings.Cut(name, "|")
		slug := strings.NewReplacer("/", "_", ".", "_").Replace(name)
		file := filepath.Join(temp, slug+cmp.Or(of, ".go"))
		if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(dir, "pagecode", slug, cmp.Or(of, "page.go"))] = file
		packages = append(packages, "./pagecode/"+slug)
	}
	slices.Sort(packages)
	packages = slices.Compact(packages)
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(temp, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	// go build links the programs among several packages, and throws them away.
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-f", "{{.ImportPath}}", "-overlay", filepath.Join(temp, "overlay.json")}, packages...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	switch {
	case unreachable.Match(out):
		t.Skipf("modules cannot be downloaded here: %s", out)
	case err != nil:
		return errors.New(string(out))
	}
	return nil
}

// fragments returns the Go code of a page that no test or example has, white space aside.
func fragments(page string, tested []string) (all []pagecode.Block) {
	for _, b := range pagecode.Parse(page).Blocks {
		if b.Lang == "go" && !slices.ContainsFunc(tested, func(source string) bool { return strings.Contains(source, words(b.Text)) }) {
			all = append(all, b)
		}
	}
	return all
}

// pageSources returns for each module what is to be compiled of the pages, by their names.
func pageSources(root string, all map[string]string, frames map[string]pageFrame, tested, folders []string) (map[string]map[string]string, error) {
	modules, used := map[string]map[string]string{}, map[string]bool{}
	for name, page := range all {
		blocks := fragments(page, tested)
		if len(blocks) == 0 {
			continue
		}
		frame, ok := frames[name]
		if !ok {
			return nil, fmt.Errorf("%s:%d: no test or example has this code, and the page has no frame in pageFrames:\n%s", name, blocks[0].Line, blocks[0].Text)
		}
		source, err := frame.source(filepath.Join(root, name), blocks, folders)
		if err != nil {
			return nil, err
		}
		if modules[frame.module] == nil {
			modules[frame.module] = map[string]string{}
		}
		modules[frame.module][name], used[name] = source, true
	}
	for name := range frames {
		if !used[name] {
			return nil, fmt.Errorf("pageFrames has %s, which needs no frame", name)
		}
	}
	return modules, nil
}

// productFolders are the folders of the packages that users import.
func productFolders(t *testing.T) (dirs []string) {
	t.Helper()
	for _, f := range repository(t).files {
		if f.product() && within(f.dir, public...) && !strings.Contains(f.dir, "internal") {
			dirs = append(dirs, f.dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// All Go code on all pages is part of a test or an example, or compiles in the frame of its page.
func TestPagesCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the code of the pages")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	modules, err := pageSources(root, pages(t), pageFrames, testedSources(t, os.DirFS(root)), productFolders(t))
	if err != nil {
		t.Fatal(err)
	}
	for dir, sources := range modules {
		t.Run(cmp.Or(dir, "etcdkit"), func(t *testing.T) {
			if err := compile(t, filepath.Join(root, dir), sources); err != nil {
				t.Error(err)
			}
		})
	}
}

// Code that does not compile is found out on the line of its page; so are a page without a frame and a frame
// without a page.
func TestPagesCompileFails(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the code of pages")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	const fine, wrong = "Text\n\n```go\nx := errors.New(\"x\")\nfmt.Print(x)\n```\n", "Text\n\n```go\nx := 1\ny := concurrency.Nothing(x)\n```\n"
	frames := map[string]pageFrame{"a.md": {}, "b.md": {vars: "v int"}}
	folders := []string{"concurrency"}
	modules, err := pageSources(root, map[string]string{"a.md": fine, "b.md": fine, "c.md": "none"}, frames, nil, folders)
	if err != nil {
		t.Fatal(err)
	}
	if err := compile(t, root, modules[""]); err != nil {
		t.Error(err)
	}
	modules, err = pageSources(root, map[string]string{"a.md": fine, "b.md": wrong}, frames, nil, folders)
	if err != nil {
		t.Fatal(err)
	}
	if err := compile(t, root, modules[""]); err == nil || !regexp.MustCompile(`b\.md:5: undefined: concurrency\.Nothing`).MatchString(err.Error()) {
		t.Errorf("%v, want the line of b.md", err)
	}
	for name, all := range map[string]map[string]string{
		"no frame":      {"a.md": fine, "b.md": fine, "c.md": fine},
		"no page":       {"a.md": fine},
		"no Go at all":  {"a.md": fine, "b.md": "Text\n\n```go\nx := \n```\n"},
		"tested by now": {"a.md": fine, "b.md": "Text\n\n```go\ntested()\n```\n"},
	} {
		if got, err := pageSources(root, all, frames, []string{"func f() { tested() }"}, folders); err == nil {
			t.Errorf("%s passes: %v", name, got)
		}
	}
	if !strings.Contains(modules[""]["a.md"], "errors \"errors\"") {
		t.Errorf("no import of errors in\n%s", modules[""]["a.md"])
	}
}
