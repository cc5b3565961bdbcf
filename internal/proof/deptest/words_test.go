package deptest

import (
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"
)

// unclear are words that leave open which process or caller is meant, or that have a plain
// term.
var unclear = regexp.MustCompile(`(?i)\b(somebody|someone|nobody|whoever|tells?|told|telling|heeds?|heeded|meddled|he|him|his)\b`)

// unclearTexts returns the texts in Go files with an unclear word, each with its place. Tests are left
// out: they may name what must not be.
func unclearTexts(tr *tree) (found []string) {
	for _, f := range tr.files {
		if strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && unclear.MatchString(lit.Value) {
				found = append(found, tr.fset.Position(lit.Pos()).String()+": "+lit.Value)
			}
			return true
		})
	}
	return found
}

// unclearFiles returns the files of other kinds with an unclear word: what a browser shows, scripts, settings, models, what
// tests compare with. Go files are read as such, and pages by TestPagesArePlain; of the Go files in folders
// that the go command leaves out, all words are read.
func unclearFiles(t *testing.T, root fs.FS) (read map[string]int, found []string) {
	t.Helper()
	read = map[string]int{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		folder, _, _ := strings.Cut(name, "/")
		hidden := strings.HasPrefix(name, ".")
		switch {
		case err != nil:
			return err
		case slices.Contains([]string{".git", "bin", "out"}, folder):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir() || path.Ext(name) == ".md" || path.Ext(name) == ".go" && !hidden:
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if !utf8.Valid(text) {
			return err
		}
		if word := unclear.Find(text); word != nil {
			found = append(found, name+": "+string(word))
		}
		read[folder]++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return read, found
}

// What a program returns as an error, logs, answers, prints or explains is read by people who did not
// write it. No text of a folder has an unclear word: the product, its command and pages, the examples,
// the benchmarks, and what proves the product, which prints too.
func TestTextsArePlain(t *testing.T) {
	for text, want := range map[string]bool{
		"paused by ops": false, "the request was told": true, "intelligible, here, the": false, "Nobody waits": true, "does not heed it": true,
	} {
		if unclear.MatchString(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
	read, folders := 0, map[string]bool{}
	for module, tr := range modules(t) {
		for _, f := range tr.files {
			if !strings.HasSuffix(f.path, "_test.go") {
				folder, _, _ := strings.Cut(module+f.path, "/")
				folders[folder] = true
				read++
			}
		}
		for _, breach := range unclearTexts(tr) {
			t.Errorf("%s%s: name the thing, and use the plain word (CONTRIBUTING.md, Words)", module, breach)
		}
	}
	for _, folder := range append([]string{"bench", "compat", "demos", "examples", "internal"}, public...) {
		if !folders[folder] {
			t.Errorf("no file of %s was read", folder)
		}
	}
	if read < 500 {
		t.Errorf("only %d files were read", read)
	}
	others, found := unclearFiles(t, os.DirFS("../../.."))
	for _, breach := range found {
		t.Errorf("%s: name the thing, and use the plain word (CONTRIBUTING.md, Words)", breach)
	}
	for _, folder := range []string{".ci", ".golangci.yml", "Makefile", "cmd", "console", "demos", "docs", "findings", "internal"} {
		if others[folder] == 0 {
			t.Errorf("no file of %s was read", folder)
		}
	}
}

// TestTextsArePlainFails shows that an unclear word is found in each folder, and left to tests and
// comments.
func TestTextsArePlainFails(t *testing.T) {
	const source = "\n// nobody\nvar x = \"nobody waits\"\n"
	dirs := append([]string{"bench/work", "compat", "examples/fleet", "internal/rank", "internal/proof/check"}, public...)
	sources := map[string]string{"console/a_test.go": "package console" + source}
	for _, dir := range dirs {
		sources[dir+"/a.go"] = "package " + path.Base(dir) + source
	}
	if got := unclearTexts(planted(t, sources)); len(got) != len(dirs) {
		t.Errorf("%q, want one in each of %q", got, dirs)
	}
	others := fstest.MapFS{
		"console/templates/b.html": {Data: []byte("<p>No request waits")}, "internal/a/testdata/picture.png": {Data: []byte("told\xff")},
		".git/a.js": {Data: []byte("// told\n")}, "bin/told": {Data: []byte("told")}, "docs/a.md": {Data: []byte("`told`")}, "console/a.go": {Data: []byte("// told")},
	}
	breaches := []string{"console/templates/a.html", "console/static/a.js", ".ci/run", ".ci/manifests/main.go", "findings/a.sh", "Makefile", ".golangci.yml", "docs/model/a.pml", "internal/a/testdata/a.golden"}
	for _, name := range breaches {
		others[name] = &fstest.MapFile{Data: []byte("# nobody waits\n")}
	}
	if _, got := unclearFiles(t, others); len(got) != len(breaches) {
		t.Errorf("%q, want one in each of %q", got, breaches)
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
	maps.DeleteFunc(all, func(name, _ string) bool { return name == "CHANGELOG.md" || within(name, "examples", "demos") })
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

// alertName is the name of a rule of Prometheus.
var alertName = regexp.MustCompile(`(?m)^ *- alert: (\w+)$`)

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
	all := modules(t)
	ours := all[""]
	known := map[string]bool{"TestName": true, "NewCtxClient": true} // any test; of etcd's client
	for _, file := range []string{"alerts.yaml", "fleet_alerts.yaml"} {
		rules, err := os.ReadFile("../../../docs/observability/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range alertName.FindAllStringSubmatch(string(rules), -1) {
			known[m[1]] = true
		}
	}
	for _, tr := range all {
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
		if name == "docs/comparison.md" || name == "internal/proof/comparison-sources.md" || name == "docs/migration.md" || name == "docs/design/0015-names-before-1.0.md" {
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
