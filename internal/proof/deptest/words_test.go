package deptest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unclear are words that leave open which process or caller is meant, or that have a plain
// term.
var unclear = regexp.MustCompile(`(?i)\b(somebody|someone|nobody|whoever|tells?|told|telling|heeds?|heeded|meddled|he|him|his)\b`)

// What the product returns as an error, logs or answers is read by those who did not write it.
// No text of its packages has an unclear word.
func TestTextsArePlain(t *testing.T) {
	for text, want := range map[string]bool{
		"paused by ops": false, "the request was told": true, "intelligible, here, the": false, "Nobody waits": true, "does not heed it": true,
	} {
		if unclear.MatchString(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
	read := 0
	for _, dir := range []string{"concurrency", "schedlock", "idempotency", "internal"} {
		err := filepath.WalkDir(filepath.Join("..", "..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "proof" || d.Name() == "ports") && strings.HasSuffix(filepath.Dir(path), "internal") {
				return fs.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			read++
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && unclear.MatchString(lit.Value) {
					t.Errorf("%s: %s", fset.Position(lit.Pos()), lit.Value)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 100 {
		t.Errorf("only %d files were read", read)
	}
}

// dialect are words of the pages that have a plain term: a reader asks which process or caller
// is meant, or what the process does.
var dialect = regexp.MustCompile(`(?i)\b(some(body|one)|nobody|anybody|who(ever|m)?|tells?|told|telling|heed(s|ed)?|hears?|heard|hangs? on|` +
	`stands?|stood|standing|g(i|a)ves? back|given? (back|free)|giving back|go(es)? on|going on|went on|he|his|him|himself|words? arrives?)\b`)

// allowed are phrases in which such a word is the plain one.
var allowed = map[string]string{
	"stands for":              "the field's term for a symbol",
	"stands by":               "the same, as a verb",
	"An engineer who reads":   "a person",
	"paused, by whom and why": "a person, the operator who has paused a job",
}

// notProse is what of a page is not its own words: code, addresses of links.
var notProse = regexp.MustCompile("(?ms)^```.*?^```$|^    .*?$|`[^`\n]*`|\\]\\([^)]*\\)")

// dialectIn returns the words of a page that have a plain term, each with what is around it.
func dialectIn(page string) (found []string) {
	text := notProse.ReplaceAllString(page, "")
	for phrase := range allowed {
		text = strings.ReplaceAll(text, phrase, "")
	}
	for _, at := range dialect.FindAllStringIndex(text, -1) {
		found = append(found, text[max(0, at[0]-40):min(len(text), at[1]+40)])
	}
	return found
}

// plainPages are the pages below docs, and those of the repository's root but its history.
func plainPages(t *testing.T) map[string]string {
	all := pages(t)
	maps.DeleteFunc(all, func(name, _ string) bool { return name == "CHANGELOG.md" || within(name, "examples") })
	return all
}

// Pages are read at night, by engineers for whom English is a second language: no page has a
// word of the dialect.
func TestPagesArePlain(t *testing.T) {
	for name, page := range plainPages(t) {
		for _, where := range dialectIn(page) {
			t.Errorf("%s: …%s…: name the thing, and use the plain word (CONTRIBUTING.md, Words)", name, where)
		}
	}
	for text, want := range map[string]int{
		"The caller is told so, by whoever waits.": 2, "`TestWhoIsTold`, [who](who.md)": 1, "It stands for the queue.": 0,
		"```sh\nwho\n```\n": 0, "    echo told\n": 0, "The permit is given back; word arrives.": 2,
	} {
		if got := dialectIn(text); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}

// goName is code on a page that names something in Go: Name, package.Name, Type.Member, with a
// call's arguments or without.
var goName = regexp.MustCompile("`\\*?((?:[A-Za-z]\\w*\\.)*[A-Z]\\w*[a-z]\\w*)(?:\\([^`]*\\))?`")

// unknownNames returns the names on a page that no Go file has, as an identifier or a string.
func unknownNames(page string, known map[string]bool) (found []string) {
	for _, m := range goName.FindAllStringSubmatch(page, -1) {
		for part := range strings.SplitSeq(m[1], ".") {
			if !known[part] {
				found = append(found, m[1])
				break
			}
		}
	}
	return found
}

// goPath is code on a page that names a file or a folder of the repository.
var goPath = regexp.MustCompile("`((?:(?:concurrency|idempotency|schedlock|embedtest|integration|internal|examples|compat)/)[\\w/.-]+|[a-z][\\w.-]*\\.go)`")

// unknownPaths returns the files and folders on a page that do not exist. A file without a folder
// may be in any.
func unknownPaths(page string, tr *tree) (found []string) {
	for _, m := range goPath.FindAllStringSubmatch(page, -1) {
		if !slices.ContainsFunc(tr.files, func(f file) bool {
			return f.path == m[1] || within(f.dir, m[1]) || path.Base(f.path) == m[1]
		}) {
			found = append(found, m[1])
		}
	}
	return found
}

// Pages name what exists: a name that was changed in the code is changed on the pages. Pages
// about other libraries are left out, and those about former names.
func TestPagesNameWhatExists(t *testing.T) {
	ours := repository(t)
	known := map[string]bool{"TestName": true, "NewCtxClient": true} // any test; of etcd's client
	for _, tr := range []*tree{ours, readTree(t, os.DirFS("../../../integration")), readTree(t, os.DirFS("../../../bench"))} {
		for _, f := range tr.files {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Ident:
					known[n.Name] = true
				case *ast.BasicLit: // such as the name of a subtest
					known[strings.Trim(n.Value, "\"`")] = true
				}
				return true
			})
		}
	}
	for name, page := range plainPages(t) {
		if name == "docs/comparison.md" || name == "docs/migration.md" || name == "docs/design/0015-names-before-1.0.md" {
			continue
		}
		for _, breach := range unknownNames(page, known) {
			t.Errorf("%s: no Go file has %s", name, breach)
		}
		for _, breach := range unknownPaths(page, ours) {
			t.Errorf("%s: there is no %s", name, breach)
		}
	}
	tr := planted(t, map[string]string{"internal/queue/rank.go": "package queue"})
	if got := unknownPaths("`rank.go`, `internal/queue`, `internal/queue/rank.go`, `file.go`, `internal/rank`, `internal/queue/file.go`, `a/b`", tr); len(got) != 3 {
		t.Errorf("unknown paths %q", got)
	}
	if got := unknownNames("`A.Bc`, `Bc(x)`, `*De`, `TTL`, `a.Xy`, `make test`", map[string]bool{"A": true, "Bc": true, "a": true}); !slices.Equal(got, []string{"De", "a.Xy"}) {
		t.Errorf("unknown names %q", got)
	}
}
