package deptest

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// maxMethods and maxFiles bound a type: its methods, and the files that have them. The bounds on
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

// tooLarge are the types that were above a bound when the rule came. A number that is within its bound
// is the bound. The list may only shrink: a row is lowered or removed, never raised, and none is added.
var tooLarge = map[string]excess{
	"concurrency/internal/middleware.Admission": {extent{maxMethods, 5}, "two policies of an outage, and work in the background, have a file each"},
	"console.console":                 {extent{maxMethods, 10}, "a page is a file with its handler"},
	"idempotency/conformance.fixture": {extent{maxMethods, 7}, "a promise of each kind is a file"},
	"idempotency/idemhttp.config":     {extent{maxMethods, 5}, "statuses, keys, bodies, replays and problems are decided from one set of options"},
	"internal/engine.Epoch":           {extent{maxMethods, 5}, "what ends with a lease: its end, its notices, its permits, its contacts"},
	"internal/engine.Session":         {extent{47, 6}, "what all packages ask of a session, by topic: all of it shares the lease's lock"},
	"internal/fleet.State":            {extent{maxMethods, 6}, "a kind of subject is a file"},
	"internal/mirror.Source":          {extent{maxMethods, 5}, "a read, a watch, the times of both, and how they begin anew"},
}

// receivers measures the types of the product that have methods, by folder and name. A method that is
// written once for each system counts once.
func receivers(tr *tree) map[string]extent {
	methods, files := map[string][]string{}, map[string][]string{}
	for _, f := range tr.files {
		if !f.product() {
			continue
		}
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil {
				name := f.dir + "." + receiverName(fn.Recv.List[0].Type)
				methods[name] = append(methods[name], fn.Name.Name)
				files[name] = append(files[name], f.path)
			}
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

	systems := planted(t, map[string]string{
		"console/a_linux.go": "package console\nfunc (t T) m() {}\n", "console/a_other.go": "package console\nfunc (t *T) m() {}\nfunc (t T) n() {}\n",
		"console/a_test.go": "package console\nfunc (t T) o() {}\n",
	})
	if got := receivers(systems)["console.T"]; got != (extent{2, 2}) {
		t.Errorf("a method of two systems: %v, want 2 methods in 2 files", got)
	}
}
