package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// The benchmark and the console's pages in a browser are tested if their own files, or the exported
// declarations that they use, differ from those of the last green commit; and in make verify, always.

// subject is something that is tested only when it has changed.
type subject struct {
	files []string // its own, each a file or a folder
	api   []string // the folders of the packages that it uses
}

var subjects = map[string]subject{
	"bench": {
		files: []string{"bench", "go.mod", "internal/proof/procs", "internal/ports"},
		api:   []string{"concurrency", "idempotency", "schedlock", "embedtest"},
	},
	"browser": {
		files: []string{"console", "integration/console_browser_test.go", "integration/go.mod", "go.mod"},
		api:   []string{"concurrency", "idempotency", "schedlock", "embedtest"},
	},
}

// changes compares the working directory with a commit.
type changes struct{ last string }

// reason returns why a subject need not be tested, or "" if it is to be tested.
func (c changes) reason(name string) string {
	s, ok := subjects[name]
	if !ok || c.last == "" {
		return ""
	}
	then, err := archived(c.last, append(slices.Clone(s.files), s.api...))
	if err != nil {
		return "" // this clone does not have the commit
	}
	now, err := present(os.DirFS("."), append(slices.Clone(s.files), s.api...))
	if err != nil || !s.same(then, now) {
		return ""
	}
	return fmt.Sprintf("nothing that it tests has changed since %s, which was green; make verify PARTS=%s runs it", c.last, name)
}

// same reports whether two trees, of paths and texts, have the same files of the subject and declare
// the same for it.
func (s subject) same(then, now map[string]string) bool {
	for _, of := range []map[string]string{then, now} {
		for name := range of {
			if within(name, s.files) && then[name] != now[name] {
				return false
			}
		}
	}
	was, err := s.declares(then)
	is, also := s.declares(now)
	return err == nil && also == nil && was == is
}

// declares returns the exported declarations of the packages that the subject uses.
func (s subject) declares(tree map[string]string) (string, error) {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || !within(name, s.api) || strings.Contains(name, "/internal/") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, tree[name], parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
			case *ast.FuncDecl:
				d.Body = nil
			}
			var b bytes.Buffer
			if err := format.Node(&b, fset, decl); err != nil {
				return "", err
			}
			fmt.Fprintf(&text, "%s: %s\n", path.Dir(name), b.String())
		}
	}
	return text.String(), nil
}

func within(name string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return name == root || strings.HasPrefix(name, root+"/") })
}

// archived returns the files of a commit below some paths.
func archived(commit string, paths []string) (map[string]string, error) {
	out, err := exec.Command("git", append([]string{"archive", "--format=tar", commit, "--"}, paths...)...).Output() //nolint:gosec // names of ours
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		files[h.Name] = string(text)
	}
}

// present returns the files of the working directory below some paths.
func present(root fs.FS, paths []string) (map[string]string, error) {
	files := map[string]string{}
	for _, p := range paths {
		err := fs.WalkDir(root, p, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := fs.ReadFile(root, name)
			files[name] = string(text)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}
