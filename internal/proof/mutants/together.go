package mutants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Together writes the files of a tree that has many mutants at once below dir, and a file for go's -overlay, whose path it
// returns: a function that mutants change is there once as it is and once for each of them. A program that is built so is the
// mutant whose name its folder has, as are the processes that it starts of itself, and the product in any other folder.
// It returns the names of the mutants that have to be built alone: they change another declaration than a function, or a
// function that would do something else if another one called it.
func Together(all []Mutant, root, dir string) (overlay string, alone []string, err error) {
	t := &tree{files: map[string]*together{}}
	for _, m := range all {
		fits, err := t.add(m, root)
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		if !fits {
			alone = append(alone, m.Name)
		}
	}
	replace := map[string]string{}
	put := func(path string, src []byte) error {
		to := filepath.Join(dir, fmt.Sprintf("together-%d.go", len(replace)))
		if path, err = filepath.Abs(path); err != nil {
			return err
		}
		replace[path] = to
		return os.WriteFile(to, src, 0o600)
	}
	chooses := map[string]string{} // the packages that have to know the mutant, by directory
	for path, f := range t.files {
		if len(f.functions) == 0 {
			continue
		}
		if err := put(path, f.text()); err != nil {
			return "", nil, err
		}
		chooses[filepath.Dir(path)] = f.syntax.Name.Name
	}
	for dir, name := range chooses {
		if err := put(filepath.Join(dir, chosen+".go"), []byte("package "+name+"\n"+choosing)); err != nil {
			return "", nil, err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	overlay = filepath.Join(dir, "together.json")
	return overlay, alone, os.WriteFile(overlay, b, 0o600)
}

// chosen is the variable of a package that has the name of the mutant, and its file, with the text choosing.
const (
	chosen   = "chosenMutant"
	choosing = `
import (
	mutant_os "os"
	mutant_filepath "path/filepath"
)

var chosenMutant = func() string {
	program, err := mutant_os.Executable()
	if err != nil {
		panic(err)
	}
	return mutant_filepath.Base(mutant_filepath.Dir(program))
}()
`
)

// tree is what Together has read.
type tree struct{ files map[string]*together }

// together is one file with functions that mutants change.
type together struct {
	src       []byte
	syntax    *ast.File
	functions map[*ast.FuncDecl][]copied
}

// copied is what one mutant makes of a function.
type copied struct {
	mutant string
	hits   []hit
}

// suffix is what its name has after that of the function.
func (c copied) suffix() string { return "_" + strings.ReplaceAll(c.mutant, "-", "_") }

// add adds a mutant to the files that it changes, or reports false and adds nothing.
func (t *tree) add(m Mutant, root string) (fits bool, err error) {
	type place struct {
		file *together
		in   *ast.FuncDecl
	}
	hits := map[place][]hit{}
	for _, e := range m.edits {
		path, h, err := e.locate(root)
		if err != nil {
			return false, fmt.Errorf("%s, %s: %w", e.pkg, e.decl, err)
		}
		f, err := t.file(path, h.src)
		if err != nil {
			return false, err
		}
		in := f.function(h)
		if in == nil || dependsOnCaller(in) {
			return false, nil
		}
		hits[place{f, in}] = append(hits[place{f, in}], h)
	}
	for at, hits := range hits {
		slices.SortFunc(hits, func(a, b hit) int { return a.start - b.start })
		at.file.functions[at.in] = append(at.file.functions[at.in], copied{m.Name, hits})
	}
	return true, nil
}

func (t *tree) file(path string, src []byte) (*together, error) {
	if f := t.files[path]; f != nil {
		return f, nil
	}
	syntax, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	t.files[path] = &together{src, syntax, map[*ast.FuncDecl][]copied{}}
	return t.files[path], nil
}

// at is the offset of a position: each file has a set of its own.
func (f *together) at(p token.Pos) int { return int(p - f.syntax.FileStart) }

// of is the text of a node.
func (f *together) of(n ast.Node) string { return string(f.src[f.at(n.Pos()):f.at(n.End())]) }

// function returns the one whose body has a hit, or nil.
func (f *together) function(h hit) *ast.FuncDecl {
	for _, d := range f.syntax.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil && f.at(d.Body.Lbrace) < h.start && h.end <= f.at(d.Body.Rbrace) {
			return d
		}
	}
	return nil
}

// dependsOnCaller reports whether a function would not do the same if another one called it.
func dependsOnCaller(d *ast.FuncDecl) (depends bool) {
	if name := d.Name.Name; d.Recv == nil && (name == "init" || name == "main") {
		return true
	}
	ast.Inspect(d.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		depends = depends || ok && slices.Contains([]string{"recover", "Caller", "Callers"}, id.Name)
		return !depends
	})
	return depends
}

// text is the file with all its mutants. What is not a name of a function keeps its line.
func (f *together) text() []byte {
	order := slices.SortedFunc(maps.Keys(f.functions), func(a, b *ast.FuncDecl) int { return int(a.Pos() - b.Pos()) })
	var out, more bytes.Buffer
	at := 0
	for _, d := range order {
		end := f.at(d.Name.End())
		out.Write(f.src[at:end])
		out.WriteString("_original")
		at = end
		more.WriteString(f.choice(d, f.functions[d]))
		for _, c := range f.functions[d] {
			more.WriteString(f.mutated(d, c))
		}
	}
	out.Write(f.src[at:])
	out.Write(more.Bytes())
	return out.Bytes()
}

// mutated is a function as a mutant has it.
func (f *together) mutated(d *ast.FuncDecl, c copied) string {
	var out strings.Builder
	name := f.at(d.Name.End())
	fmt.Fprintf(&out, "\n%s%s", f.src[f.at(d.Pos()):name], c.suffix())
	at := name
	for _, h := range c.hits {
		fmt.Fprintf(&out, "%s %s ", f.src[at:h.start], h.put)
		at = h.end
	}
	fmt.Fprintf(&out, "%s\n", f.src[at:f.at(d.End())])
	return out.String()
}

// choice is the function that has the name, and calls the one that is chosen.
func (f *together) choice(d *ast.FuncDecl, copies []copied) string {
	call, head := "", "func "
	if d.Recv != nil {
		call = "mutated."
		head += fmt.Sprintf("(mutated %s) ", f.of(d.Recv.List[0].Type))
	}
	head += d.Name.Name
	kinds := ""
	if d.Type.TypeParams != nil {
		head += f.of(d.Type.TypeParams)
		var names []string
		for _, field := range d.Type.TypeParams.List {
			for _, id := range field.Names {
				names = append(names, id.Name)
			}
		}
		kinds = "[" + strings.Join(names, ", ") + "]"
	}
	var params, args []string
	for _, field := range d.Type.Params.List {
		for range max(1, len(field.Names)) {
			arg := fmt.Sprintf("mutated%d", len(args))
			params = append(params, arg+" "+f.of(field.Type))
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	head += "(" + strings.Join(params, ", ") + ") "
	returns, over := "", "\n\t\treturn"
	if d.Type.Results != nil {
		head += f.of(d.Type.Results) + " "
		returns, over = "return ", ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\n%s{\n\tswitch %s {\n", head, chosen)
	for _, c := range copies {
		fmt.Fprintf(&out, "\tcase %q:\n\t\t%s%s%s%s%s(%s)%s\n", c.mutant, returns, call, d.Name.Name, c.suffix(), kinds, strings.Join(args, ", "), over)
	}
	fmt.Fprintf(&out, "\t}\n\t%s%s%s_original%s(%s)\n}\n", returns, call, d.Name.Name, kinds, strings.Join(args, ", "))
	return out.String()
}
