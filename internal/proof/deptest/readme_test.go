package deptest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// maxReadme is the size in bytes up to which a newcomer reads the README.
const maxReadme = 8 << 10

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// words returns a text with each run of white space as one space.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }

// readmeBreaches compares the Go code of the README with the sources that tests run, white
// space aside, and its size with maxReadme.
func readmeBreaches(readme string, tested []string) (found []string) {
	if len(readme) > maxReadme {
		found = append(found, fmt.Sprintf("the README has %d bytes, more than %d: move details to docs", len(readme), maxReadme))
	}
	blocks := goBlock.FindAllStringSubmatch(readme, -1)
	if blocks == nil {
		found = append(found, "the README has no Go program")
	}
	for _, block := range blocks {
		if !slices.ContainsFunc(tested, func(source string) bool { return strings.Contains(source, words(block[1])) }) {
			found = append(found, "no test or example has this code of the README:\n"+block[1])
		}
	}
	return found
}

// testedSources returns the words of each file that tests compile and run to show users how:
// the tests of the public packages, the examples, and integration.
func testedSources(t *testing.T, root fs.FS) (all []string) {
	t.Helper()
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".go" ||
			!within(name, "examples") && !(strings.HasSuffix(name, "_test.go") && within(name, append(public, "integration")...)) {
			return err
		}
		source, err := fs.ReadFile(root, name)
		all = append(all, words(string(source)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestReadmeProgram holds the README's code to what is tested.
func TestReadmeProgram(t *testing.T) {
	root := os.DirFS("../../..")
	readme, err := fs.ReadFile(root, "README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, breach := range readmeBreaches(string(readme), testedSources(t, root)) {
		t.Error(breach)
	}
}

// TestPagesPrograms holds the Go code of pages that show whole calls to what is tested. Other pages
// show settings alone.
func TestPagesPrograms(t *testing.T) {
	tested, all := testedSources(t, os.DirFS("../../..")), pages(t)
	for _, name := range []string{"docs/adopt.md", "docs/limits.md", "docs/migration.md"} {
		blocks := goBlock.FindAllStringSubmatch(all[name], -1)
		if blocks == nil {
			t.Errorf("%s: no Go code", name)
		}
		for _, block := range blocks {
			if !slices.ContainsFunc(tested, func(source string) bool { return strings.Contains(source, words(block[1])) }) {
				t.Errorf("%s: no test or example has this code:\n%s", name, block[1])
			}
		}
	}
}

// TestReadmeProgramFails shows that code that differs, none at all, and a long README are
// found out.
func TestReadmeProgramFails(t *testing.T) {
	root := fstest.MapFS{
		"concurrency/example_test.go": &fstest.MapFile{Data: []byte("package p\n\nfunc run() error {\n\treturn nil\n}\n")},
		"concurrency/session.go":      &fstest.MapFile{Data: []byte("package p\n\nfunc untested() {}\n")},
	}
	tested := testedSources(t, root)
	for readme, breaches := range map[string]int{
		"Text.\n```go\nfunc run() error {\n    return nil\n}\n```\n": 0,
		"```go\nreturn nil\n```\n":                                   0,
		"```go\nfunc run() error { return ErrFull }\n```\n":          1,
		"```go\nreturn nil\n```\n```go\nfunc walk() {}\n```\n":       1,
		"```go\nfunc untested() {}\n```\n":                           1,
		"```sh\nmake\n```\n":                                         1,
		"```go\nreturn nil\n```\n" + strings.Repeat("x", maxReadme):  1,
	} {
		if got := readmeBreaches(readme, tested); len(got) != breaches {
			t.Errorf("%.60q: breaches %q, want %d", readme, got, breaches)
		}
	}
}

var (
	readmeMinutes = regexp.MustCompile(`make test +#[^\n]*?(\d+) minutes on two cores`)
	gateSeconds   = regexp.MustCompile("(?m)^\\| `test` \\| passed \\| (\\d+) \\|")
)

// minutesBreach compares how long make test takes by the README with the gate's own table.
func minutesBreach(readme, testing string) string {
	says, took := readmeMinutes.FindStringSubmatch(readme), gateSeconds.FindStringSubmatch(testing)
	if says == nil || took == nil {
		return "the README does not say how many minutes make test takes on two cores, or internal/proof/testing.md has no row for it"
	}
	if !strings.Contains(testing, ", on 2 processors with ") {
		return "" // README speaks of another machine, and the run has left it as it was
	}
	minutes, _ := strconv.Atoi(says[1])
	seconds, _ := strconv.Atoi(took[1])
	if want := (seconds + 59) / 60; minutes != want {
		return fmt.Sprintf("the README says that make test takes %d minutes; by the last gate it took %d s", minutes, seconds)
	}
	return ""
}

// The README's time of make test is that of the last gate, in which other targets run beside it.
func TestReadmeSaysHowLong(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if breach := minutesBreach(read("README.md"), read("internal/proof/testing.md")); breach != "" {
		t.Error(breach)
	}
	const readme = "    make test   # all tests, 4 minutes on two cores\n"
	for row, fine := range map[string]bool{
		"| `test` | passed | 240 | 71 | 0 |": true, "| `test` | passed | 181 | 71 | 0 |": true, "| `test` | passed | 241 | 71 | 0 |": false,
		"| `test` | passed | 100 | 71 | 0 |": false, "| `test` | FAILED | 240 | 71 | 0 |": false, "": false,
	} {
		if breach := minutesBreach(readme, "2026-11-27 15:04, a12b, on 2 processors with go:\n"+row); fine != (breach == "") {
			t.Errorf("%s: %q", row, breach)
		}
	}
	if breach := minutesBreach(readme, "2026-11-27 15:04, a12b, on 16 processors with go:\n| `test` | passed | 60 | 71 | 0 |"); breach != "" {
		t.Errorf("another machine: %s", breach)
	}
	if minutesBreach("make test # minutes", "| `test` | passed | 240 | 71 | 0 |") == "" {
		t.Error("a README without a figure passes")
	}
}
