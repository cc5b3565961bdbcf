package mutants

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// edit is one search and replace in one declaration of one package.
type edit struct {
	pkg  string // its directory, below the root
	decl string
	find string
	put  string
}

// lexeme is one token of Go and where it is.
type lexeme struct {
	token.Token
	text       string
	start, end int
}

// lex returns what counts of src: no comments, no comma or semicolon before a closing
// bracket, and no semicolon that only marks the end of src.
func lex(src []byte) ([]lexeme, error) {
	var s scanner.Scanner
	var errs scanner.ErrorList
	file := token.NewFileSet().AddFile("", -1, len(src))
	s.Init(file, src, errs.Add, 0)
	var all []lexeme
	for {
		pos, tok, lit := s.Scan()
		drops := tok == token.RPAREN || tok == token.RBRACK || tok == token.RBRACE
		if last := len(all) - 1; last >= 0 && (drops && all[last].separates() || tok == token.EOF && all[last].text == "\n") {
			all = all[:last]
		}
		if tok == token.EOF {
			return all, errs.Err()
		}
		x := lexeme{Token: tok, text: cmp.Or(lit, tok.String()), start: file.Offset(pos)}
		x.end = x.start + len(x.text)
		if x.text == "\n" { // a semicolon in place of a line break
			x.end = x.start
		}
		all = append(all, x)
	}
}

func (x lexeme) separates() bool { return x.Token == token.COMMA || x.Token == token.SEMICOLON }

func same(a, b lexeme) bool {
	return a.Token == b.Token && (a.text == b.text || a.Token == token.SEMICOLON)
}

// hit is where the text of a file is replaced.
type hit struct {
	src        []byte
	start, end int
	next       token.Position // of what follows
	put        string
}

// apply returns the mutated files, by their paths.
func (m Mutant) apply(root string) (map[string][]byte, error) {
	hits := map[string][]hit{}
	for _, e := range m.edits {
		path, h, err := e.locate(root)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", e.pkg, e.decl, err)
		}
		hits[path] = append(hits[path], h)
	}
	mutated := map[string][]byte{}
	for path, hits := range hits {
		slices.SortFunc(hits, func(a, b hit) int { return cmp.Compare(a.start, b.start) })
		var out []byte
		at, src := 0, hits[0].src
		for _, h := range hits {
			if h.start < at {
				return nil, fmt.Errorf("%s: two edits overlap", filepath.Base(path))
			}
			out = append(append(append(append(out, src[at:h.start]...), ' '), h.put...), ' ')
			if strings.Count(h.put, "\n") != bytes.Count(src[h.start:h.end], []byte("\n")) {
				out = fmt.Appendf(out, "/*line :%d:%d*/", h.next.Line, h.next.Column)
			}
			at = h.end
		}
		mutated[path] = append(out, src[at:]...)
	}
	return mutated, nil
}

// locate finds the one place in the tree at root that e replaces.
func (e edit) locate(root string) (path string, _ hit, _ error) {
	want, err := lex([]byte(e.find))
	if err != nil {
		return "", hit{}, fmt.Errorf("read Find: %w", err)
	}
	put, err := lex([]byte(e.put))
	if err != nil {
		return "", hit{}, fmt.Errorf("read Put: %w", err)
	}
	if len(want) == 0 || slices.EqualFunc(want, put, same) {
		return "", hit{}, fmt.Errorf("no token in Find, or the same ones in Put: %s", e.find)
	}
	text := "" // of Put, without comments around it
	if len(put) > 0 {
		text = e.put[put[0].start:put[len(put)-1].end]
	}

	dir := filepath.Join(root, filepath.FromSlash(e.pkg))
	names, err := sources(dir)
	if err != nil {
		return "", hit{}, err
	}
	fset, declared := token.NewFileSet(), false
	var found []hit
	for _, name := range names {
		src, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", hit{}, err
		}
		if !bytes.Contains(src, []byte(member(e.decl))) {
			continue
		}
		file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
		if err != nil {
			return "", hit{}, err
		}
		for _, n := range declarations(file, plain(e.decl)) {
			declared = true
			start, end := fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset
			have, err := lex(src[start:end])
			if err != nil {
				return "", hit{}, err
			}
			for i := range have {
				if last := i + len(want) - 1; last < len(have) && slices.EqualFunc(have[i:last+1], want, same) {
					path = filepath.Join(dir, name)
					next := fset.Position(n.Pos() + token.Pos(have[last].end))
					found = append(found, hit{src, start + have[i].start, start + have[last].end, next, text})
				}
			}
		}
	}
	switch {
	case !declared:
		return "", hit{}, fmt.Errorf("the package has no such declaration in its %d files", len(names))
	case len(found) != 1:
		return "", hit{}, fmt.Errorf("%d matches in it, want 1, of: %s", len(found), e.find)
	}
	return path, found[0], nil
}

// sources returns the names of the files that the package in dir is built from here.
func sources(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range entries {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		builds, err := build.Default.MatchFile(dir, f.Name())
		if err != nil {
			return nil, err
		}
		if builds {
			names = append(names, f.Name())
		}
	}
	return names, nil
}

var typeArguments = regexp.MustCompile(`\[[^\]]*\]`)

// plain returns (*T[K]).m as T.m.
func plain(name string) string {
	return strings.NewReplacer("(", "", ")", "", "*", "").Replace(typeArguments.ReplaceAllString(name, ""))
}

// member returns (*T[K]).m as m, which a file that declares it contains.
func member(name string) string {
	name = plain(name)
	return name[strings.LastIndexByte(name, '.')+1:]
}

// declarations returns those of a name in a file: functions, methods, and the part of a
// group of types, constants or variables that declares it.
func declarations(file *ast.File, name string) (found []ast.Node) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if method(d) == name {
				found = append(found, d)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.Name == name {
						found = append(found, spec)
					}
				case *ast.ValueSpec:
					if slices.ContainsFunc(spec.Names, func(id *ast.Ident) bool { return id.Name == name }) {
						found = append(found, spec)
					}
				}
			}
		}
	}
	return found
}

// method returns the name of a function, after that of its receiver's type.
func method(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	x := f.Recv.List[0].Type
	for {
		switch t := x.(type) {
		case *ast.StarExpr:
			x = t.X
		case *ast.ParenExpr:
			x = t.X
		case *ast.IndexExpr:
			x = t.X
		case *ast.IndexListExpr:
			x = t.X
		case *ast.Ident:
			return t.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}
