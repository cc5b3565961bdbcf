package deptest

import (
	"strings"
	"testing"
)

// operators are persons, to whom "who" may refer.
var operators = strings.NewReplacer("operator who", "operator")

// dialectOfComments lists the words in the comments of packages that have a plain term.
func dialectOfComments(tr *tree) (found []string) {
	for _, f := range tr.files {
		if strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for _, group := range f.ast.Comments {
			text := operators.Replace(strings.Join(strings.Fields(group.Text()), " "))
			for _, where := range dialectIn(text) {
				found = append(found, tr.fset.Position(group.Pos()).String()+": …"+where+"…")
			}
		}
	}
	return found
}

// Comments are contracts: each names the caller, the holder or the process that it is about, and
// uses the field's verbs.
func TestCommentsArePlain(t *testing.T) {
	for _, where := range dialectOfComments(repository(t)) {
		t.Errorf("%s: name the thing, and use the plain word (CONTRIBUTING.md, Words)", where)
	}
	tr := planted(t, map[string]string{
		"a/a.go":      "// Package a tells whoever\n// waits.\npackage a\n\n// X is set by the operator who asks.\nvar X int\n",
		"a/a_test.go": "// nobody\npackage a\n",
	})
	if got := dialectOfComments(tr); len(got) != 2 {
		t.Errorf("%q, want tells and whoever", got)
	}
}
