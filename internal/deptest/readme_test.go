package deptest

import (
	"go/ast"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// programOf is where the program of the README is compiled and run.
const programOf = "concurrency/example_test.go"

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// readmeBreach compares the first Go program of the README with the function of
// its name in the tested example, whitespace aside.
func readmeBreach(readme string, tr *tree, root fs.FS) string {
	block := goBlock.FindStringSubmatch(readme)
	if block == nil {
		return "the README has no Go program"
	}
	words := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	for _, f := range tr.files {
		if f.path != programOf {
			continue
		}
		source, err := fs.ReadFile(root, f.path)
		if err != nil {
			return err.Error()
		}
		for _, decl := range f.ast.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(block[1], "func "+d.Name.Name+"(") {
				continue
			}
			tested := string(source[tr.fset.Position(d.Pos()).Offset:tr.fset.Position(d.End()).Offset])
			if words(tested) != words(block[1]) {
				return "the program of the README is not the one in " + programOf
			}
			return ""
		}
	}
	return "the program of the README is not in " + programOf
}

// TestReadmeProgram holds the README's program to the one that is tested.
func TestReadmeProgram(t *testing.T) {
	root := os.DirFS("../..")
	readme, err := fs.ReadFile(root, "README.md")
	if err != nil {
		t.Fatal(err)
	}
	if breach := readmeBreach(string(readme), repository(t), root); breach != "" {
		t.Error(breach)
	}
}

// TestReadmeProgramFails shows that a program that differs is found out.
func TestReadmeProgramFails(t *testing.T) {
	source := "package concurrency_test\n\nfunc run() error {\n\treturn nil\n}\n"
	root := fstest.MapFS{programOf: &fstest.MapFile{Data: []byte(source)}}
	tr := readTree(t, root)
	for readme, ok := range map[string]bool{
		"Text.\n```go\nfunc run() error {\n    return nil\n}\n```\n": true,
		"```go\nfunc run() error { return ErrFull }\n```\n":          false,
		"```go\nfunc walk() error { return nil }\n```\n":             false,
		"```sh\nmake\n```\n": false,
	} {
		if breach := readmeBreach(readme, tr, root); (breach == "") != ok {
			t.Errorf("%q: %q", readme, breach)
		}
	}
}

var (
	namedTest = regexp.MustCompile("`(?:(\\w+)\\.)?((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`")
	link      = regexp.MustCompile(`\]\(([^)#\s]*)(?:#[^)]*)?\)`)
)

// docBreaches checks that the tests that a document names exist, and that its
// links to files of the repository lead somewhere.
func docBreaches(name, doc string, tests map[string]bool, root fs.FS) (found []string) {
	for _, m := range namedTest.FindAllStringSubmatch(doc, -1) {
		if m[2] == "TestName" {
			continue // stands for any
		}
		exists := m[1] != "" && tests[m[1]+"."+m[2]]
		for test := range tests {
			exists = exists || m[1] == "" && strings.HasSuffix(test, "."+m[2])
		}
		if !exists {
			found = append(found, name+": there is no test "+strings.Trim(m[0], "`"))
		}
	}
	for _, m := range link.FindAllStringSubmatch(doc, -1) {
		if m[1] == "" || strings.Contains(m[1], "://") {
			continue
		}
		if _, err := fs.Stat(root, path.Join(path.Dir(name), m[1])); err != nil {
			found = append(found, name+": the link to "+m[1]+" leads nowhere")
		}
	}
	return found
}

// TestDocs holds all documents to what they point at.
func TestDocs(t *testing.T) {
	root := os.DirFS("../..")
	tests := allTests(t)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/design/*.md", "docs/model/*.md"} {
		names, err := fs.Glob(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			doc, err := fs.ReadFile(root, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, breach := range docBreaches(name, string(doc), tests, root) {
				t.Error(breach)
			}
		}
	}
}

// TestDocsFail shows that a name or link that leads nowhere is found out.
func TestDocsFail(t *testing.T) {
	root := fstest.MapFS{"docs/a.md": &fstest.MapFile{}, "README.md": &fstest.MapFile{}}
	tests := map[string]bool{"queue.TestFront": true}
	for doc, breaches := range map[string]int{
		"`TestFront`, `queue.TestFront`, [a](a.md#b), [r](../README.md), [x](https://example.org), [c](#d)": 0,
		"`TestBack`":        1,
		"`lease.TestFront`": 1,
		"[b](b.md)":         1,
	} {
		if got := docBreaches("docs/a.md", doc, tests, root); len(got) != breaches {
			t.Errorf("%q: breaches %q, want %d", doc, got, breaches)
		}
	}
}
