package deptest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

// copies are the programs of the quickstart that its page says how to copy.
var copies = map[string]replaced{
	"nightly": {}, "worker": {}, "leader": {}, "payments": {files: []string{"hint.go", "commands.go"}},
	"charge":  {files: []string{"hint.go"}},
	"partner": {files: []string{"callers.go"}, own: "func callers(context.Context, *http.Client) error { return nil }"},
}

// replaced is what of a program stays behind, and what a reader has in its place.
type replaced struct {
	files []string
	own   string
}

// What the page says to leave out, and what of program a reader replaces by work and hooks of their own.
var (
	leftBehind = regexp.MustCompile(`(?m)^(func main\(\) .*|\s*hint\(.*|\s*"` + module + `/internal/examples/program")$`)
	work       = regexp.MustCompile(`\bprogram\.Work\b`)
	hooks      = regexp.MustCompile(`\bprogram\.Hooks\(\w+\)`)
	offered    = regexp.MustCompile(`(?m)^.*\bOf (.*) copy the folder\b`)
	quoted     = regexp.MustCompile("`([^`]+)`")
)

// copied returns the files of a program as a reader of the page copies them, beside the main of the page.
func copied(dir string, without replaced, main string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%s has no files: %w", dir, err)
	}
	sources := map[string]string{filepath.Base(dir) + "|page.go": main + "\nfunc work(context.Context, string, time.Duration) error { return nil }\n"}
	if without.own != "" {
		sources[filepath.Base(dir)+"|own.go"] = "package main\n\nimport (\n\t\"context\"\n\t\"net/http\"\n)\n\n" + without.own + "\n"
	}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasSuffix(name, "_test.go") || slices.Contains(without.files, name) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		source := hooks.ReplaceAllString(work.ReplaceAllString(leftBehind.ReplaceAllString(string(text), ""), "work"), "nil")
		if strings.Contains(source, "/internal/") || strings.Contains(source, "program.") {
			return nil, fmt.Errorf("%s needs an internal package, which no other module can import", file)
		}
		sources[filepath.Base(dir)+"|"+name] = source
	}
	return sources, nil
}

// The programs that the quickstart's page says how to copy compile as it says, without internal packages.
func TestQuickstartsAreCopied(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles programs")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	const page = "examples/quickstart/README.md"
	offer := offered.FindStringSubmatch(pages(t)[page])
	if offer == nil {
		t.Fatalf("%s does not say which folders a reader copies", page)
	}
	var names []string
	for _, m := range quoted.FindAllStringSubmatch(offer[1], -1) {
		names = append(names, m[1])
	}
	if slices.Sort(names); !slices.Equal(names, slices.Sorted(maps.Keys(copies))) {
		t.Errorf("%s offers the folders %q to be copied, and these are compiled: %q", page, names, slices.Sorted(maps.Keys(copies)))
	}
	blocks := slices.DeleteFunc(pagecode.Parse(pages(t)[page]).Blocks, func(b pagecode.Block) bool { return b.Lang != "go" })
	main, err := pageFrame{vars: "_ time.Duration"}.source(page, blocks, nil)
	if err != nil {
		t.Fatal(err)
	}
	main = strings.Replace(main, "package p", "package main", 1)
	all := map[string]string{}
	for name, without := range copies {
		sources, err := copied(filepath.Join(root, "examples/quickstart", name), without, main)
		if err != nil {
			t.Fatal(err)
		}
		for name, source := range sources {
			all["copied/"+name] = source
		}
	}
	if err := compile(t, root, all); err != nil {
		t.Error(err)
	}
	if _, err := copied(filepath.Join(root, "examples/quickstart/mutex"), replaced{}, main); err == nil {
		t.Error("a program on an internal package passes")
	}
}
