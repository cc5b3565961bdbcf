package deptest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

const module = "github.com/etcdkit/etcdkit"

// public lists the folders of what users import or execute.
var public = []string{"cmd", "concurrency", "console", "embedtest", "exporter", "idempotency", "observe", "schedlock"}

// file is one parsed Go source file of the repository.
type file struct {
	path  string // slash-separated, from the repository's root
	dir   string
	test  bool // a _test.go file, or part of a package that only tests import
	lines int
	ast   *ast.File
}

// testOnly lists the folders that are test code, or part of examples, although their files are not
// named so.
var testOnly = []string{"compat", "internal/proof", "cmd/etcdkit/internal/cli/clitest", sharedByExamples}

// sharedByExamples is the folder of what the examples and demos share.
const sharedByExamples = "internal/examples"

// tree is all Go source of one module, read without compiling it, so that the
// rules also see files for other platforms and build tags.
type tree struct {
	fset  *token.FileSet
	files []file
}

// readOnce has the modules that were read, by their folders: two dozen tests read the same, which takes a second or
// more of processor time each. They change nothing of it.
var readOnce sync.Map

// repository is the source of the module that this test is part of.
func repository(t *testing.T) *tree {
	t.Helper()
	return moduleIn(t, "")
}

// moduleIn is the source of the module in a folder.
func moduleIn(t *testing.T, dir string) *tree {
	t.Helper()
	tr, ok := readOnce.Load(dir)
	if !ok {
		tr, _ = readOnce.LoadOrStore(dir, readTree(t, os.DirFS("../../../"+dir)))
	}
	return tr.(*tree) //nolint:forcetypeassert // stored above
}

// modules are the sources of each module of the repository, by its folder with a slash behind it.
func modules(t *testing.T) map[string]*tree {
	t.Helper()
	all := map[string]*tree{"": repository(t)}
	for _, dir := range []string{"integration", "bench", "demos", "compat/etcd35", "compat/etcd36", "compat/etcd37"} {
		all[dir+"/"] = moduleIn(t, dir)
	}
	return all
}

// planted reads a made-up tree of paths and sources.
func planted(t *testing.T, sources map[string]string) *tree {
	t.Helper()
	files := fstest.MapFS{}
	for name, source := range sources {
		files[name] = &fstest.MapFile{Data: []byte(source)}
	}
	return readTree(t, files)
}

func readTree(t *testing.T, root fs.FS) *tree {
	t.Helper()
	tr := &tree{fset: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && skipDir(root, name) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(tr.fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		tr.files = append(tr.files, file{
			path:  name,
			dir:   dir,
			test:  strings.HasSuffix(name, "_test.go") || within(dir, testOnly...),
			lines: bytes.Count(source, []byte("\n")),
			ast:   parsed,
		})
		return nil
	})
	if err != nil {
		t.Fatalf("reading the source tree: %v", err)
	}
	return tr
}

// skipDir reports whether the go command, too, would not look into a folder for
// packages of this module.
func skipDir(root fs.FS, dir string) bool {
	base := path.Base(dir)
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" {
		return true
	}
	_, err := fs.Stat(root, path.Join(dir, "go.mod"))
	return err == nil
}

// imports returns the import paths of a file.
func (f file) imports() []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		p, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		paths = append(paths, p)
	}
	return paths
}

// pkg returns the name of the package that a file belongs to or tests.
func (f file) pkg() string { return strings.TrimSuffix(f.ast.Name.Name, "_test") }

// product reports whether a file is part of what users import or execute, or of what that is built
// from.
func (f file) product() bool {
	return !f.test && (within(f.dir, public...) || within(f.dir, "internal"))
}

// within reports whether p is one of the roots or lies below one.
func within(p string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return p == root || strings.HasPrefix(p, root+"/")
	})
}

// ours returns the folder of one of our packages, given its import path.
func ours(importPath string) (dir string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}
