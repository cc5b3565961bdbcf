package deptest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// listPage has the rows that comments name by their ids.
const listPage = "internal/proof/tested-failures.md"

// namedRow is an id of a row in a comment, of one of the kinds that requiredIDs has.
var namedRow = regexp.MustCompile(`\b(?:[ABCDHJKLMNOPQRSTUVW]\d{1,2}|A\d{3}|[FI]\d{2})\b`)

// testedRows are the rows that the comment of a test begins with: "W13: …", "T1, T7: …".
var testedRows = regexp.MustCompile(`(?m)^((?:[ABCDFHIJKLMNOPQRSTUVW]\d{1,2}|A\d{3})(?:, (?:[ABCDFHIJKLMNOPQRSTUVW]\d{1,2}|A\d{3}))*): `)

// unlisted reports the comments that name a row of the list which it does not have, and the files of
// the product that name one without the page: in the first comment that does, since a reader of W13
// cannot guess where it is explained. Tests need no link, because each row names its tests: their comments
// begin with the row. What exists to prove has ids of its own, those of the checkers.
func unlisted(tr *tree, rows []string) (found []string) {
	for _, f := range tr.files {
		linked := false
		for _, group := range f.ast.Comments {
			at, text := tr.fset.Position(group.Pos()).String(), strings.Join(strings.Fields(group.Text()), " ")
			var named []string
			if f.product() {
				named = namedRow.FindAllString(text, -1)
			} else if m := testedRows.FindStringSubmatch(group.Text()); m != nil && strings.HasSuffix(f.path, "_test.go") {
				named = strings.Split(m[1], ", ")
			}
			for _, id := range named {
				if !slices.Contains(rows, id) {
					found = append(found, at+": "+listPage+" has no row "+id)
				}
			}
			if f.product() && len(named) > 0 && !linked {
				if linked = true; !strings.Contains(text, listPage) {
					found = append(found, at+": the first comment of a file that names a row says where it is: ("+named[0]+" in "+listPage+")")
				}
			}
		}
	}
	return found
}

// trap is a row with a word before it by which no list has it.
var trap = regexp.MustCompile(`(?i)\btraps? ([A-Z]\d+)\b`)

// traps reports the comments that name a row so: a reader would look for a list of traps.
func traps(tr *tree) (found []string) {
	for _, f := range tr.files {
		for _, group := range f.ast.Comments {
			for _, m := range trap.FindAllStringSubmatch(strings.Join(strings.Fields(group.Text()), " "), -1) {
				found = append(found, tr.fset.Position(group.Pos()).String()+": a row is named by its id alone: ("+m[1]+" in "+listPage+"), or, where the comment of a test begins, "+m[1]+": …")
			}
		}
	}
	return found
}

// A row has one name everywhere, that by which the list has it.
func TestRowsHaveOneName(t *testing.T) {
	for module, tr := range modules(t) {
		for _, breach := range traps(tr) {
			t.Error(module + breach)
		}
	}
	for name, page := range pages(t) {
		if found := trap.FindString(page); found != "" {
			t.Errorf("%s: a row is named by its id alone, with a link to %s: %q", name, listPage, found)
		}
	}
	tr := planted(t, map[string]string{
		"concurrency/a.go":         "package a\n// F waits (trap W13 in internal/proof/tested-failures.md).\nfunc F() {}\n",
		"internal/queue/a_test.go": "package a\n// F waits: it is not admitted (trap\n// W13).\nfunc F() {}\n// Trap W13: it waits.\nfunc TestTrapW13() {}\n",
		"schedlock/a_test.go":      "package a\n// W13: it is no trap (W13).\nfunc F() {}\n",
	})
	if got := traps(tr); len(got) != 3 {
		t.Errorf("breaches %q, want three", got)
	}
}

// TestCommentsNameRows holds comments to the rows of internal/proof/tested-failures.md.
func TestCommentsNameRows(t *testing.T) {
	var rows []string
	for _, row := range idRow.FindAllStringSubmatch(pages(t)[listPage], -1) {
		rows = append(rows, row[1])
	}
	for _, breach := range unlisted(repository(t), rows) {
		t.Error(breach)
	}
	for _, id := range requiredIDs() {
		if !namedRow.MatchString(id) || !testedRows.MatchString(id+": x") {
			t.Errorf("%s is not known as an id", id)
		}
	}
}

// TestCommentsNameRowsFails shows that a row without the page is found out, and one that is not there.
func TestCommentsNameRowsFails(t *testing.T) {
	rows := []string{"W1", "W13", "F05"}
	const page = " in internal/proof/tested-failures.md)"
	for name, tt := range map[string]struct {
		path, comments string
		want           []string
	}{
		"linked":           {"concurrency/a.go", "// F waits (W13" + page + ".\nfunc F() {}\n// G waits (W1).\nfunc G() {}", nil},
		"a line later":     {"concurrency/a.go", "// F waits (W13 in\n// internal/proof/tested-failures.md).\nfunc F() {}", nil},
		"within a line":    {"console/a.go", "var x = 1 // (F05" + page, nil},
		"other words":      {"concurrency/a.go", "// F takes 100 W, UTF8, F5, X13 and W131.\nfunc F() {}", nil},
		"without the page": {"concurrency/a.go", "// F waits (W13).\nfunc F() {}", []string{"a.go:2", "(W13 in internal/proof/tested-failures.md)"}},
		"linked too late":  {"concurrency/a.go", "// F waits (W13).\nfunc F() {}\n// G waits (W1" + page + ".\nfunc G() {}", []string{"a.go:2", "(W13 in internal/proof/tested-failures.md)"}},
		"a page elsewhere": {"cmd/etcdkit/internal/cli/a.go", "// internal/proof/tested-failures.md is a page.\n\n// F waits (W13).\nfunc F() {}", []string{"a.go:4", "(W13 in internal/proof/tested-failures.md)"}},
		"no such row":      {"internal/queue/a.go", "// F waits (W14" + page + ".\nfunc F() {}", []string{"a.go:2", "has no row W14"}},
		"test":             {"concurrency/a_test.go", "// W13, F05: it waits.\nfunc F() {}\n// W1: so it is, and W14 is no row.\nfunc G() {}", nil},
		"test, no row":     {"concurrency/a_test.go", "// W13, F06: it waits.\nfunc F() {}", []string{"a_test.go:2", "has no row F06"}},
		"virtual, no row":  {"internal/proof/virtual/a_test.go", "// W14: it waits.\nfunc F() {}", []string{"a_test.go:2", "has no row W14"}},
		"checker":          {"internal/proof/check/a.go", "// F is C6: it waits.\nfunc F() {}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := unlisted(planted(t, map[string]string{tt.path: "package a\n" + tt.comments + "\n"}), rows)
			if len(tt.want) == 0 && len(got) == 0 {
				return
			}
			if len(got) != 1 || len(tt.want) == 0 || !strings.Contains(got[0], tt.want[0]) || !strings.Contains(got[0], tt.want[1]) {
				t.Errorf("breaches %q, want one: %q", got, tt.want)
			}
		})
	}
}
