package deptest

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// maxMethods and maxFiles bound a type: its methods, functions that could be methods of it included, and the files that
// have them. The bounds on
// functions and files alone do not keep code apart: with them, a type grows by further files with the
// same receiver. Each of its methods may read and write all of its fields, so a change of one requires
// reading them all. A part of such a type that has state of its own becomes a type of its own.
const (
	maxMethods = 40
	maxFiles   = 4
)

// extent is how many methods a type has, and how many files have one.
type extent struct{ methods, files int }

// An excess is a type above a bound, and the reason.
type excess struct {
	extent
	why string
}

// beside is why functions of a type are in more files than its methods.
const beside = "functions that need a little of it for one purpose are beside that purpose"

// tooLarge are the types that were above a bound when the rule came, for functions on 30 November 2026. A number that is
// within its bound is the bound. The list may only shrink: a row is lowered or removed, never raised, and none is added.
var tooLarge = map[string]excess{
	"concurrency/internal/middleware.Admission": {extent{maxMethods, 5}, "two policies of an outage, and work in the background, have a file each"},
	"console.console":                 {extent{maxMethods, 13}, "a page is a file with its handler"},
	"console.order":                   {extent{maxMethods, 5}, beside},
	"console.request":                 {extent{maxMethods, 19}, "a page is a file, with what reads it for a request"},
	"embedtest.running":               {extent{maxMethods, 5}, beside},
	"idempotency.Attempt":             {extent{53, 9}, "how an attempt works, ends, is noticed and is observed has a file each; Step is generic, and no method can be"},
	"idempotency.Store":               {extent{maxMethods, 6}, beside},
	"idempotency/conformance.fixture": {extent{45, 9}, "a promise of each kind is a file"},
	"idempotency/idemhttp.config":     {extent{maxMethods, 5}, "statuses, keys, bodies, replays and problems are decided from one set of options"},
	"internal/doctor.Survey":          {extent{maxMethods, 5}, beside},
	"internal/engine.Epoch":           {extent{maxMethods, 5}, "what ends with a lease: its end, its notices, its permits, its contacts"},
	"idempotency/idemhttp.recorder":   {extent{41, 4}, "what net/http's ResponseWriter may be asked for, and how an answer ends"},
	"internal/engine.Session":         {extent{45, 8}, "what all packages ask of a session, by topic: fourteen of them return a field"},
	"internal/fleet.Queue":            {extent{maxMethods, 5}, beside},
	"internal/fleet.State":            {extent{maxMethods, 7}, "a kind of subject is a file"},
	"internal/keyspace.Space":         {extent{maxMethods, 5}, beside},
	"internal/mirror.Source":          {extent{maxMethods, 5}, "a read, a watch, the times of both, and how they begin anew"},
	"internal/queue.Queue":            {extent{maxMethods, 5}, beside},
	"schedlock.Locker":                {extent{maxMethods, 13}, beside},
	"schedlock.claim":                 {extent{maxMethods, 6}, beside},
	"schedlock.job":                   {extent{maxMethods, 6}, beside},
}

// receivers measures the types of the product that have methods, by folder and name. A method that is
// written once for each system counts once. A function that is not exported counts as a method of its first parameter,
// contexts apart, if it uses a field or method of it that is not exported: it could be one, and reads and writes the same.
func receivers(tr *tree) map[string]extent {
	declared := typesOf(tr)
	methods, files := map[string][]string{}, map[string][]string{}
	for _, f := range tr.files {
		if !f.product() {
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := f.dir + "." + subject(fn)
			if fn.Recv == nil && (fn.Name.IsExported() || !declared[name] || !usesHidden(fn)) {
				continue
			}
			methods[name] = append(methods[name], fn.Name.Name)
			files[name] = append(files[name], f.path)
		}
	}
	count := func(names []string) int {
		slices.Sort(names)
		return len(slices.Compact(names))
	}
	all := map[string]extent{}
	for name := range methods {
		all[name] = extent{count(methods[name]), count(files[name])}
	}
	return all
}

// typesOf returns the types that the product declares, by folder and name.
func typesOf(tr *tree) map[string]bool {
	all := map[string]bool{}
	for _, f := range tr.files {
		if !f.product() {
			continue
		}
		for _, decl := range f.ast.Decls {
			if of, ok := decl.(*ast.GenDecl); ok && of.Tok == token.TYPE {
				for _, spec := range of.Specs {
					all[f.dir+"."+spec.(*ast.TypeSpec).Name.Name] = true //nolint:forcetypeassert // it is one, by the token
				}
			}
		}
	}
	return all
}

// first returns the receiver of a method, or the first parameter of a function that is no context; nil if there is none.
func first(fn *ast.FuncDecl) *ast.Field {
	if fn.Recv != nil {
		return fn.Recv.List[0]
	}
	for _, param := range fn.Type.Params.List {
		if sel, ok := param.Type.(*ast.SelectorExpr); ok && sel.Sel.Name == "Context" {
			continue
		}
		return param
	}
	return nil
}

// subject returns the name of the type of a function's receiver or first parameter, or "".
func subject(fn *ast.FuncDecl) string {
	if of := first(fn); of != nil {
		return receiverName(of.Type)
	}
	return ""
}

// usesHidden reports whether a function uses a field or method of its first parameter that is not exported.
func usesHidden(fn *ast.FuncDecl) (uses bool) {
	of := first(fn)
	if fn.Body == nil || of == nil || len(of.Names) == 0 {
		return false
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			x, ok := sel.X.(*ast.Ident)
			uses = uses || ok && x.Name == of.Names[0].Name && !sel.Sel.IsExported()
		}
		return !uses
	})
	return uses
}

// receiverBreaches compares the types with the bounds, and with the rows of those that may be above.
func receiverBreaches(all, rows map[string]extent) (found []string) {
	for name, is := range all {
		row, listed := rows[name]
		least := extent{max(is.methods, maxMethods), max(is.files, maxFiles)}
		inBounds := least == extent{maxMethods, maxFiles}
		switch {
		case !listed && !inBounds:
			found = append(found, fmt.Sprintf("%s has %d methods in %d files, and the bounds are %d and %d: give a part of it that has state of its own a type of its own, or put its methods into fewer files", name, is.methods, is.files, maxMethods, maxFiles))
		case !listed || row == least && !inBounds:
		case least.methods > row.methods || least.files > row.files:
			found = append(found, fmt.Sprintf("%s has grown to %d methods in %d files, and its row in tooLarge allows %d and %d: it may only shrink", name, is.methods, is.files, row.methods, row.files))
		case inBounds:
			found = append(found, fmt.Sprintf("%s is within the bounds, with %d methods in %d files: remove its row from tooLarge", name, is.methods, is.files))
		default:
			found = append(found, fmt.Sprintf("%s has shrunk: lower its row in tooLarge from {%d, %d} to {%d, %d}", name, row.methods, row.files, least.methods, least.files))
		}
	}
	for name := range rows {
		if _, ok := all[name]; !ok {
			found = append(found, name+" has no methods, or does not exist: remove its row from tooLarge")
		}
	}
	slices.Sort(found)
	return found
}

func TestReceivers(t *testing.T) {
	all := receivers(repository(t))
	if len(all) < 100 {
		t.Errorf("only %d types with methods were found", len(all))
	}
	rows := map[string]extent{}
	for name, e := range tooLarge {
		if e.why == "" {
			t.Errorf("%s is above a bound without a reason", name)
		}
		rows[name] = e.extent
	}
	for _, breach := range receiverBreaches(all, rows) {
		t.Error(breach)
	}
}

// TestReceiversFail shows that a type that is too large is found out, and that the list of those that
// were too large can only shrink.
func TestReceiversFail(t *testing.T) {
	// typed returns the files of a type T with so many methods in so many files.
	typed := func(dir string, methods, files int) map[string]string {
		sources := map[string]string{}
		for n := range methods {
			name := fmt.Sprintf("%s/f%d.go", dir, n%files)
			if sources[name] == "" {
				sources[name] = "package " + path.Base(dir) + "\n"
			}
			sources[name] += fmt.Sprintf("func (t *T[K]) m%d() {}\n", n)
		}
		return sources
	}
	tests := map[string]struct {
		dir            string
		methods, files int
		row            extent // none if it is zero
		want           string // of the one breach, or none
	}{
		"at the bounds":           {"schedlock", maxMethods, maxFiles, extent{}, ""},
		"one method more":         {"schedlock", maxMethods + 1, maxFiles, extent{}, "has 41 methods in 4 files"},
		"one file more":           {"schedlock", 5, maxFiles + 1, extent{}, "has 5 methods in 5 files"},
		"internal":                {"internal/queue", maxMethods + 1, 1, extent{}, "has 41 methods in 1 files"},
		"of the command":          {"cmd/etcdkit/internal/cli", maxMethods + 1, 1, extent{}, "has 41 methods in 1 files"},
		"of the console":          {"console", maxMethods + 1, 1, extent{}, "has 41 methods in 1 files"},
		"proof":                   {"internal/proof/check", maxMethods + 1, maxFiles + 1, extent{}, ""},
		"example":                 {"examples/fleet", maxMethods + 1, maxFiles + 1, extent{}, ""},
		"listed":                  {"schedlock", 50, 6, extent{50, 6}, ""},
		"listed, many methods":    {"schedlock", 50, 1, extent{50, maxFiles}, ""},
		"listed, many files":      {"schedlock", 20, 6, extent{maxMethods, 6}, ""},
		"grown by a method":       {"schedlock", 51, 6, extent{50, 6}, "has grown to 51 methods in 6 files"},
		"grown by a file":         {"schedlock", 50, 7, extent{50, 6}, "has grown to 50 methods in 7 files"},
		"grown above a bound":     {"schedlock", maxMethods + 1, 6, extent{maxMethods, 6}, "has grown to 41 methods in 6 files"},
		"grown and shrunk":        {"schedlock", 51, 5, extent{50, 6}, "has grown to 51 methods in 5 files"},
		"shrunk by a method":      {"schedlock", 49, 6, extent{50, 6}, "lower its row in tooLarge from {50, 6} to {49, 6}"},
		"shrunk by a file":        {"schedlock", 50, 5, extent{50, 6}, "lower its row in tooLarge from {50, 6} to {50, 5}"},
		"shrunk below a bound":    {"schedlock", 12, 6, extent{50, 6}, "lower its row in tooLarge from {50, 6} to {40, 6}"},
		"within the bounds":       {"schedlock", 12, 3, extent{50, 6}, "remove its row"},
		"a row without an excess": {"schedlock", 12, 3, extent{maxMethods, maxFiles}, "remove its row"},
		"gone":                    {"examples/fleet", 50, 6, extent{50, 6}, "does not exist: remove its row"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			rows := map[string]extent{}
			if tt.row != (extent{}) {
				rows[tt.dir+".T"] = tt.row
			}
			got := receiverBreaches(receivers(planted(t, typed(tt.dir, tt.methods, tt.files))), rows)
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("breaches %q, want %q", got, tt.want)
			}
		})
	}

	for name, tt := range map[string]struct {
		source string
		want   int // methods
	}{
		"a field":               {"func f(t *T) { t.n++ }", 2},
		"a method":              {"func f(t T) { t.m() }", 2},
		"after a context":       {"func f(ctx context.Context, t *T) { t.n++ }", 2},
		"generic":               {"func f[E any](t *T, e E) { t.n++ }", 2},
		"behind another":        {"func f(n int, t *T) { t.n++ }", 1},
		"exported":              {"func F(t *T) { t.n++ }", 1},
		"what all can use":      {"func f(t *T) { t.M() }", 1},
		"of another's":          {"func f(t *T) { u.n++ }", 1},
		"nothing of it":         {"func f(*T) {}", 1},
		"a type of another":     {"func f(t *other.T) { t.n++ }", 1},
		"not declared here":     {"func f(t U) { t.n++ }", 1},
		"a parameter in a type": {"func f(t []T) { t[0].n++ }", 1},
	} {
		t.Run(name, func(t *testing.T) {
			tr := planted(t, map[string]string{"console/a.go": "package console\ntype T struct{ n int }\nfunc (t T) m() {}\n", "console/b.go": "package console\n" + tt.source + "\n"})
			if got := receivers(tr)["console.T"]; got != (extent{tt.want, tt.want}) {
				t.Errorf("%v, want %d methods in as many files", got, tt.want)
			}
			if got := receivers(tr)["console.U"]; got != (extent{}) {
				t.Errorf("a type that is not declared has %v", got)
			}
		})
	}

	systems := planted(t, map[string]string{
		"console/a_linux.go": "package console\nfunc (t T) m() {}\n", "console/a_other.go": "package console\nfunc (t *T) m() {}\nfunc (t T) n() {}\n",
		"console/a_test.go": "package console\nfunc (t T) o() {}\n",
	})
	if got := receivers(systems)["console.T"]; got != (extent{2, 2}) {
		t.Errorf("a method of two systems: %v, want 2 methods in 2 files", got)
	}
}
