package deptest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
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
	return append(found, untestedCode(readme, tested)...)
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
		for _, breach := range untestedCode(all[name], tested) {
			t.Errorf("%s: %s", name, breach)
		}
	}
}

// untestedCode compares the Go code of a page with the sources that tests run, white space aside.
func untestedCode(page string, tested []string) (found []string) {
	blocks := goBlock.FindAllStringSubmatch(page, -1)
	if blocks == nil {
		found = append(found, "there is no Go code")
	}
	for _, block := range blocks {
		if !slices.ContainsFunc(tested, func(source string) bool { return strings.Contains(source, words(block[1])) }) {
			found = append(found, "no test or example has this code:\n"+block[1])
		}
	}
	return found
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
	readmeMinutes = regexp.MustCompile(`make test +#[^\n]*?(\d+) minutes on (\d+) cores`)
	lastWhole     = regexp.MustCompile("(?m)^\\| `test` \\| \\d{4}-\\d\\d-\\d\\d \\| [^|]* \\| ([^|]*) \\|$")
	green         = regexp.MustCompile(`^on (\d+) processors, green, (\d+) s\b`)
)

// minutesBreach compares how long make test takes by the README, and on which machine, with its last run in make
// verify. The gate's table does not have that: the gate runs a part of make test.
func minutesBreach(readme, testing string) string {
	says, last := readmeMinutes.FindStringSubmatch(readme), lastWhole.FindStringSubmatch(testing)
	if says == nil || last == nil {
		return "the README does not say how many minutes make test takes on how many cores, or the table of last runs of internal/proof/testing.md has no row for it"
	}
	took := green.FindStringSubmatch(last[1])
	if took == nil {
		return fmt.Sprintf("the README says that make test takes %s minutes, and no green run shows that: its row in internal/proof/testing.md is %q: run make verify PARTS=test", says[1], last[1])
	}
	seconds, _ := strconv.Atoi(took[2])
	if want := strconv.Itoa((seconds + 59) / 60); says[1] != want || says[2] != took[1] {
		return fmt.Sprintf("the README says that make test takes %s minutes on %s cores; its last run in make verify took %d s on %s", says[1], says[2], seconds, took[1])
	}
	return ""
}

// The README's time of make test is that of its last run in make verify, which writes it.
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
	const readme = "    make test   # all tests, 4 minutes on 2 cores\n"
	for row, fine := range map[string]bool{
		"on 2 processors, green, 240 s": true, "on 2 processors, green, 181 s, beside others": true, "on 2 processors, green, 241 s": false,
		"on 2 processors, green, 100 s": false, "on 16 processors, green, 240 s": false, "on 2 processors, RED after 200 s": false, "green, 240 s": false,
	} {
		page := "| `test` | passed | 100 | 90 | 19 | 57 |\n| `test` | 2026-11-27 | a12b and changes | " + row + " |\n"
		if breach := minutesBreach(readme, page); fine != (breach == "") {
			t.Errorf("%s: %q", row, breach)
		}
	}
	if minutesBreach(readme, "| `test` | passed | 240 | 90 | 19 | 57 |\n") == "" {
		t.Error("the row of the gate, which runs a part of it, passes")
	}
	if minutesBreach("make test # minutes", "| `test` | 2026-11-27 | a12b | on 2 processors, green, 240 s |\n") == "" {
		t.Error("a README without a figure passes")
	}
}

// narrows are the variables with which a target of the Makefile runs something else.
var narrows = []string{"PKGS", "VETPKGS", "TESTFLAGS", "RERUN", "EMBEDTEST_ENDPOINTS"}

// unnarrowed is the environment without them.
func unnarrowed() []string {
	return slices.DeleteFunc(os.Environ(), func(of string) bool {
		name, _, _ := strings.Cut(of, "=")
		return slices.Contains(narrows, name)
	})
}

// A run that is narrowed is refused by .ci/run and .ci/verify, before anything runs: its row and README's minutes would be those
// of the whole.
func TestNarrowedRunsAreRefused(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"run", "verify"} {
		for _, name := range narrows {
			cmd := exec.CommandContext(t.Context(), "../../../.ci/"+script, "none")
			cmd.Env = append(unnarrowed(), name+"=./internal/join", "PATH=/nowhere:/usr/bin:/bin")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), name+" ") {
				t.Errorf("%s with %s: %v\n%s", script, name, err, out)
			}
		}
	}
}

// .ci/verify writes the row and the README in the form in which they are compared, and a red run into the row alone.
func TestVerifyWritesHowLong(t *testing.T) {
	root, dir := os.DirFS("../../.."), t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), mode)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(root fs.FS, name string) string {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	write(".ci/verify", read(root, ".ci/verify"), 0o700)
	write("README.md", "    make test   # all tests, 77 minutes on 99 cores after the first build\n", 0o600)
	write("internal/proof/testing.md", read(root, "internal/proof/testing.md"), 0o600)
	write("bin/go", "#!/bin/sh\n", 0o700)
	for _, recipe := range []string{"@true", "@false"} {
		green := recipe == "@true"
		write("Makefile", "test:\n\t"+recipe+"\n", 0o600)
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, ".ci/verify"), "test")
		cmd.Env = append(unnarrowed(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); (err == nil) != green {
			t.Fatalf("%s: %v\n%s", recipe, err, out)
		}
		readme, testing := read(os.DirFS(dir), "README.md"), read(os.DirFS(dir), "internal/proof/testing.md")
		if breach := minutesBreach(readme, testing); (breach == "") != green {
			t.Errorf("%s: %q\n%s", recipe, breach, readme)
		}
	}
}
