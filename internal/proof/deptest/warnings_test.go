package deptest

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// warningRow is a row of docs/warnings.md: how a warning begins, what it means, what to do.
var warningRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| [^|]+ \\|$")

// texts returns the lines of one level that the product logs, as far as their text is written where
// they are logged, and all other texts in it, by which the rest can be found.
func (tr *tree) texts(level string) (warnings, others []string) {
	for _, f := range tr.files {
		if !f.product() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				sel, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || sel.Sel.Name != level || len(n.Args) == 0 {
					break
				}
				if lit, ok := n.Args[0].(*ast.BasicLit); ok {
					text, _ := strconv.Unquote(lit.Value)
					warnings = append(warnings, text)
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					others = append(others, text)
				}
			}
			return true
		})
	}
	return warnings, others
}

// warningBreaches compares the table of warnings in a section of a page with the warnings.
func warningBreaches(page string, warnings, others []string) (found []string) {
	_, section, _ := strings.Cut(page, "\n## What each warning means\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []string
	for _, m := range warningRow.FindAllStringSubmatch(section, -1) {
		rows = append(rows, m[1])
	}
	for _, w := range warnings {
		if !slices.ContainsFunc(rows, func(row string) bool { return strings.HasPrefix(w, row) }) {
			found = append(found, "no row has the warning "+strconv.Quote(w)+": add what it means, and what an operator does")
		}
	}
	for _, row := range rows {
		if !slices.ContainsFunc(append(warnings, others...), func(text string) bool { return strings.HasPrefix(text, row) }) {
			found = append(found, "no text of the product begins with "+strconv.Quote(row)+": the warning has another text now, or none")
		}
	}
	return found
}

// TestWarnings holds docs/warnings.md to the warnings of the product: an operator who sees
// one finds what it means.
func TestWarnings(t *testing.T) {
	warnings, others := repository(t).texts("Warn")
	if len(warnings) < 20 {
		t.Errorf("only %d warnings were found", len(warnings))
	}
	for _, breach := range warningBreaches(pages(t)["docs/warnings.md"], warnings, others) {
		t.Errorf("docs/warnings.md: %s", breach)
	}
}

// TestLevels holds docs/warnings.md to the lines of information, and the product to log no errors: what
// ends a call is returned by it.
func TestLevels(t *testing.T) {
	_, section, _ := strings.Cut(pages(t)["docs/warnings.md"], "\n## Levels of the log\n")
	section, _, _ = strings.Cut(section, "\n## ")
	lines, _ := repository(t).texts("Info")
	if len(lines) == 0 {
		t.Error("no line of information was found")
	}
	for _, line := range lines {
		if !strings.Contains(section, "`"+line+"`") {
			t.Errorf("docs/warnings.md, Levels of the log: no mention of %q", line)
		}
	}
	if n := strings.Count(section, "`") / 2; n != len(lines) {
		t.Errorf("docs/warnings.md, Levels of the log: %d texts, and the product has %d lines of information", n, len(lines))
	}
	if lines, _ := repository(t).texts("Error"); len(lines) > 0 {
		t.Errorf("lines at the level of errors: %q", lines)
	}
}

// TestWarningsFail shows that a missing row and a stale one are found out.
func TestWarningsFail(t *testing.T) {
	warnings, others := planted(t, map[string]string{
		"concurrency/a.go":        "package concurrency\nfunc f() { log.Warn(\"a is lost; b\", x); log.Warn(text); log.Debug(\"c\") }\nconst text = \"d ended\"\n",
		"concurrency/a_test.go":   "package concurrency\nfunc g() { log.Warn(\"e\") }\n",
		"internal/proof/x/x.go":   "package x\nfunc g() { log.Warn(\"f\") }\n",
		"examples/fleet/fleet.go": "package main\nfunc g() { log.Warn(\"g\") }\n",
		"console/a.go":            "package console\nfunc f() { log.Warn(\"the console h\") }\n",
	}).texts("Warn")
	const head = "\n## What each warning means\n\n| warning | meaning | action |\n|---|---|---|\n"
	for page, breaches := range map[string]int{
		head + "| `a is lost` | x | y |\n| `d ended` | x | y |\n| `the console h` | x | y |\n": 0,
		head + "| `a is lost` | x | y |\n| `d ended` | x | y |\n":                              1,
		head + "| `d ended` | x | y |\n| `the console h` | x | y |\n":                          1,
		head + "| `a is lost` | x | y |\n| `the console h` | x | y |\n| `e` | x | y |\n":       1,
		head + "\n## Next\n| `a is lost` | x | y |\n":                                          2,
		"": 2,
	} {
		if got := warningBreaches(page, warnings, others); len(got) != breaches {
			t.Errorf("%q: breaches %q, want %d", page, got, breaches)
		}
	}
}
