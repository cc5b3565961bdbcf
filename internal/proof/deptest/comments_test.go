package deptest

import (
	"slices"
	"strings"
	"testing"
)

// unrevised are packages whose comments still have words of the dialect. None is added.
var unrevised = []string{"idempotency"}

// operators are persons: the only ones about whom a comment may say who they are.
var operators = strings.NewReplacer("operator who", "operator")

// dialectOfComments lists the words in the comments of packages that have a plain term.
func dialectOfComments(tr *tree, except ...string) (found []string) {
	for _, f := range tr.files {
		if f.test || slices.Contains(except, f.dir) {
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
	for _, where := range dialectOfComments(repository(t), unrevised...) {
		t.Errorf("%s: name the thing, and use the plain word (CONTRIBUTING.md, Words)", where)
	}
	tr := planted(t, map[string]string{
		"a/a.go":      "// Package a tells whoever\n// waits.\npackage a\n\n// X is set by the operator who asks.\nvar X int\n",
		"a/a_test.go": "// nobody\npackage a\n",
		"b/b.go":      "package b // somebody\n",
	})
	if got := dialectOfComments(tr, "b"); len(got) != 2 {
		t.Errorf("%q, want tells and whoever", got)
	}
}
