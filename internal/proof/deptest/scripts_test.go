package deptest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goTest is a call of go test, in the main module, and what it is called with.
var goTest = regexp.MustCompile(`\bgo test ([^;&|\n]*)`)

// scriptTests returns the arguments of each call of go test in a script, without those that the shell or make expands.
func scriptTests(text string) (all [][]string) {
	for _, call := range goTest.FindAllStringSubmatch(strings.ReplaceAll(text, "$$", "$"), -1) {
		var args []string
		for _, word := range strings.Fields(call[1]) {
			word = strings.NewReplacer(`'`, "", `"`, "").Replace(word)
			name, value, split := strings.Cut(word, "=")
			switch {
			case split && name == "-run":
				args = append(args, name, value)
			case strings.HasPrefix(word, "$"), word == "./...":
			default:
				args = append(args, word)
			}
		}
		all = append(all, args)
	}
	return all
}

// A224: each test that the Makefile or a script of .ci runs by its package and its name exists. A call of go test that
// finds no test passes.
func TestScriptsTests(t *testing.T) {
	t.Parallel()
	all := newCatalog(t)
	scripts, err := filepath.Glob("../../../.ci/*")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, name := range append(scripts, "../../../Makefile") {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range scriptTests(string(text)) {
			calls++
			if err := all.test(args, ""); err != nil {
				t.Errorf("%s: go test %s: %v", filepath.Base(name), strings.Join(args, " "), err)
			}
		}
	}
	if calls < 5 {
		t.Errorf("%d calls of go test were found", calls)
	}
}

// A224: the part of a release that is about what is stored reads the records of a release.
func TestReleaseCheckReadsRecords(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../.ci/release-check")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(scriptTests(string(text)), func(args []string) bool { return slices.Contains(args, "./internal/proof/stored") }) {
		t.Error("no part of .ci/release-check runs the tests of internal/proof/stored")
	}
}

// A call without a test is found out.
func TestScriptsTestsFail(t *testing.T) {
	t.Parallel()
	all := &catalog{modules: map[string]*tree{"": planted(t, map[string]string{"a/a_test.go": "package a\n\nfunc TestA() {}\n", "b/b.go": "package b\n"})}}
	for line, breaches := range map[string]int{
		"\tgo test -count=1 -run 'A|B' ./a": 0, "\tgo test -run=^TestA$$ ./a": 0, "go test $(PKGS) && go test ./a": 0, "go test ./...": 0,
		"go test -run=^TestB$$ ./a": 1, "go test -run 'A' ./a ./b": 1, "go test -run X ./a; go test ./b": 2,
	} {
		found := 0
		for _, args := range scriptTests(line + "\n") {
			if all.test(args, "") != nil {
				found++
			}
		}
		if found != breaches {
			t.Errorf("%q: %d breaches, want %d", line, found, breaches)
		}
	}
}
