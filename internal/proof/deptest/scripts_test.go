package deptest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goTest is a call of go test: the module, if it is not this one, and what it is called with. makeTest is a call of a
// target of the Makefile.
var (
	goTest   = regexp.MustCompile(`\bgo (?:-C (\S+) )?test (` + callArgs + `)`)
	makeTest = regexp.MustCompile(`(?:\$\(MAKE\)|\bmake) ([a-z0-9-]+ ` + callArgs + `)`)
)

// callArgs are the arguments of a call in a script, with their quotes.
const callArgs = `(?:'[^'\n]*'|"[^"\n]*"|[^;&|\n'"])*`

// A scriptCall is a call of go test in a module, or of make.
type scriptCall struct {
	program, in string
	args        []string
}

// check reports why a call would run no test.
func (c scriptCall) check(all *catalog) error {
	if c.program == "make" {
		return all.make(c.args)
	}
	return all.test(c.args, c.in)
}

// scriptCalls returns the calls of go test in a script, and those of make that say which tests it runs, without the
// arguments that the shell or make expands.
func scriptCalls(text string) (all []scriptCall) {
	text = strings.ReplaceAll(text, "$$", "$")
	for _, call := range goTest.FindAllStringSubmatch(text, -1) {
		all = append(all, scriptCall{"go test", call[1], scriptWords(call[2])})
	}
	for _, call := range makeTest.FindAllStringSubmatch(text, -1) {
		if words := scriptWords(call[1]); strings.Contains(call[1], "TESTFLAGS=") {
			all = append(all, scriptCall{"make", "", words})
		}
	}
	return all
}

// word is an argument of a call, some of it in quotes, and expanded what the shell or make puts in its place.
var (
	word     = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	expanded = regexp.MustCompile(`\$\([^)]*\)`)
)

// scriptWords returns the arguments of a call without their quotes, and without those that are expanded.
func scriptWords(text string) (args []string) {
	for _, arg := range word.FindAllString(text, -1) {
		if strings.HasPrefix(arg, "$") {
			continue
		}
		arg = strings.NewReplacer(`'`, "", `"`, "").Replace(arg)
		args = append(args, strings.TrimSpace(expanded.ReplaceAllString(arg, "")))
	}
	return args
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
	calls := map[string]int{}
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
		for _, call := range scriptCalls(string(text)) {
			calls[call.program]++
			if err := call.check(all); err != nil {
				t.Errorf("%s: %s %s: %v", filepath.Base(name), call.program, strings.Join(call.args, " "), err)
			}
		}
	}
	if calls["go test"] < 10 || calls["make"] < 2 {
		t.Errorf("only these calls were found: %v", calls)
	}
}

// A224: the part of a release that is about what is stored reads the records of a release.
func TestReleaseCheckReadsRecords(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../.ci/release-check")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(scriptCalls(string(text)), func(c scriptCall) bool { return slices.Contains(c.args, "./internal/proof/stored") }) {
		t.Error("no part of .ci/release-check runs the tests of internal/proof/stored")
	}
}

// A call without a test is found out.
func TestScriptsTestsFail(t *testing.T) {
	t.Parallel()
	all := &catalog{
		makefile: "TESTFLAGS ?=\nPKGS ?=\ntest: VETPKGS =\nother:\n\t@go -C b test $(TESTFLAGS) ./...\ntest:\n\t@go test $(TESTFLAGS) $(PKGS)\nvet:\n\t@go vet\n",
		modules: map[string]*tree{
			"":   planted(t, map[string]string{"a/a_test.go": "package a\n\nfunc TestA() {}\n", "b/b.go": "package b\n"}),
			"b/": planted(t, map[string]string{"c/c_test.go": "package c\n\nfunc TestC() {}\n"}),
		},
	}
	for line, breaches := range map[string]int{
		"\tgo test -count=1 -run 'A|B' ./a": 0, "\tgo test -run=^TestA$$ ./a": 0, "go test $(PKGS) && go test ./a": 0, "go test ./...": 0,
		"go test -run=^TestB$$ ./a": 1, "go test -run 'A' ./a ./b": 1, "go test -run X ./a; go test ./b": 2,
		"go test -run 'B|C' ./a": 1, "go test -run '^(B|A)$$' ./a": 1, "go test -run=C ./...": 1, "go test -run=A ./a/...": 0, "go test -run=A ./b/...": 1,
		"go -C b test -run=C ./...": 0, "go -C b test -run=A ./...": 1, "go -C b test -run=C ./c": 0, "go -C b test ./a": 1, "go -C d test ./...": 1,
		`$(MAKE) other TESTFLAGS="-run=^TestC $(TESTFLAGS)"`: 0, `$(MAKE) other TESTFLAGS="-run=^TestA $(TESTFLAGS)"`: 1,
		"make test PKGS=./a TESTFLAGS='-run A -count=1'": 0, "make test PKGS='./a ./b' TESTFLAGS='-run A'": 1, "make test TESTFLAGS=-run=C": 1, "make test TESTFLAGS=-race": 0,
		"make vet TESTFLAGS=-run=A": 1, "make none TESTFLAGS=-run=A": 1, "make none": 0,
	} {
		found := 0
		for _, call := range scriptCalls(line + "\n") {
			if call.check(all) != nil {
				found++
			}
		}
		if found != breaches {
			t.Errorf("%q: %d breaches, want %d", line, found, breaches)
		}
	}
}
