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

// The benchmark, the demos, the console's pages in a browser and the alert rules are tested if their own files, those of
// the internal packages that they import, or the exported declarations of the public packages that they
// import, differ from those of the commit at which they were last tested; and in make verify, always.

// subject is something that is tested only when it has changed.
type subject struct {
	target  string      // of make, which always tests it
	tests   string      // which tests of the target; all, if it is ""
	files   []string    // its own, each a file or a folder
	api     []string    // the folders of the public packages that it uses
	imports [][2]string // modules and packages whose imports are added to both
}

var subjects = map[string]subject{
	"bench": {
		target: "bench-test", files: []string{"bench", "go.mod", "go.sum"},
		imports: [][2]string{{"bench", "./..."}},
	},
	"demos": {
		target: "demos-test", files: []string{"demos", "go.mod", "go.sum"},
		imports: [][2]string{{"demos", "./..."}, {".", "./internal/examples/..."}},
	},
	"browser": {
		target: "browser", files: []string{"console", "integration", "go.mod", "go.sum"},
		imports: [][2]string{{".", "./console/..."}, {"integration", "./..."}},
	},
	"alerts": {target: "test", tests: alertTests, files: []string{"docs/observability", "internal/proof/signals"}},
}

// wholeSubjects returns all subjects, each with what its packages import of ours.
func wholeSubjects() (map[string]subject, error) {
	all := map[string]subject{}
	for name, s := range subjects {
		of, err := s.whole()
		if err != nil {
			return nil, err
		}
		all[name] = of
	}
	return all, nil
}

// whole returns the subject with what its packages import of ours.
func (s subject) whole() (subject, error) {
	for _, of := range s.imports {
		format := `{{join .Imports "\n"}}{{"\n"}}{{join .TestImports "\n"}}{{"\n"}}{{join .XTestImports "\n"}}`
		out, err := exec.Command("go", "-C", of[0], "list", "-f", format, of[1]).Output() //nolint:gosec // of the table above
		if err != nil {
			return s, err
		}
		s = s.importing(string(out))
	}
	return s, nil
}

// importing adds packages of ours, a line each, to what the subject uses.
func (s subject) importing(list string) subject {
	s.files, s.api = slices.Clone(s.files), slices.Clone(s.api)
	for line := range strings.Lines(list) {
		dir, ok := strings.CutPrefix(strings.TrimSpace(line), ours+"/")
		switch {
		case !ok, under(dir, s.files...), under(dir, s.api...):
		case strings.Contains("/"+dir+"/", "/internal/"):
			s.files = append(s.files, dir)
		default:
			s.api = append(s.api, dir)
		}
	}
	return s
}

// changes compares the working directory with the commits at which subjects were last tested.
type changes struct{ last map[string]string }

// reason returns why a subject need not be tested, or "" if it is to be tested.
func (c changes) reason(name string) string {
	s, last := subjects[name], c.last[name]
	if last == "" || exec.Command("git", "merge-base", "--is-ancestor", last, "HEAD").Run() != nil { //nolint:gosec // a commit of the page
		return "" // never, or at a commit that this history does not have
	}
	s, err := s.whole()
	if err != nil {
		return ""
	}
	then, err := archived(last, append(slices.Clone(s.files), s.api...))
	if err != nil {
		return "" // something that it uses did not exist then
	}
	now, err := present(os.DirFS("."), append(slices.Clone(s.files), s.api...))
	if err != nil || !s.same(then, now) {
		return ""
	}
	return fmt.Sprintf("nothing that it tests has changed since %s, at which it passed; make verify PARTS=%s runs it", last, s.target)
}

// same reports whether two trees, of paths and texts, have the same files of the subject and declare
// the same for it.
func (s subject) same(then, now map[string]string) bool {
	for _, of := range []map[string]string{then, now} {
		for name := range of {
			if under(name, s.files...) && then[name] != now[name] {
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
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || !under(name, s.api...) || strings.Contains(name, "/internal/") {
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
