package deptest

import (
	"bytes"
	"flag"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is measured into docs/dependencies.md")

const (
	dependenciesDoc   = "../../../docs/dependencies.md"
	dependenciesBegin = "<!-- measured: begin -->\n"
	dependenciesEnd   = "<!-- measured: end -->\n"
)

// A program that imports only concurrency links no module that etcd's client alone does not link.
func TestConcurrencyLinksNoMore(t *testing.T) {
	modules, _ := linked(t, module+"/concurrency")
	alone, _ := linked(t, "go.etcd.io/etcd/client/v3")
	for _, m := range modules {
		if !slices.Contains(alone, m) {
			t.Errorf("a program that imports only concurrency links %s", m)
		}
	}
	if len(alone) < 10 {
		t.Errorf("etcd's client links only %q", alone)
	}
}

// TestDependenciesDoc holds docs/dependencies.md to what a module outside this repository gets that imports only
// concurrency, beside one that imports etcd's client alone. Run it with -update to write the table anew. The size of
// the programs may differ by a twentieth, since each version of Go has another one.
func TestDependenciesDoc(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds two programs, and may need modules that are not there")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	client := goMod(t, "../../../go.mod").direct()["go.etcd.io/etcd/client/v3"]
	measured := "| a program with | packages | modules | go.mod | go.sum | program |\n|---|---|---|---|---|---|\n" +
		newImporter(t, withClient, "-require=go.etcd.io/etcd/client/v3@"+client).row("etcd's client alone") +
		newImporter(t, withConcurrency, "-require="+module+"@v0.0.0", "-replace="+module+"="+root).row("`concurrency`")
	raw, err := os.ReadFile(dependenciesDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), dependenciesBegin)
	said, after, ok2 := strings.Cut(rest, dependenciesEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no lines %q and %q", dependenciesDoc, dependenciesBegin, dependenciesEnd)
	}
	if sameCost(said, measured) {
		return
	}
	if !*update {
		t.Fatalf("docs/dependencies.md is out of date; run: go test ./internal/proof/deptest -run TestDependenciesDoc -update\nmeasured now:\n%s", measured)
	}
	if err := os.WriteFile(dependenciesDoc, []byte(before+dependenciesBegin+measured+dependenciesEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// megabytes is the size of a program in the table.
var megabytes = regexp.MustCompile(`([0-9.]+) MB`)

// sameCost compares two tables, sizes to a twentieth.
func sameCost(said, measured string) bool {
	if megabytes.ReplaceAllString(said, "MB") != megabytes.ReplaceAllString(measured, "MB") {
		return false
	}
	now := megabytes.FindAllStringSubmatch(measured, -1)
	for i, of := range megabytes.FindAllStringSubmatch(said, -1) {
		a, err := strconv.ParseFloat(of[1], 64)
		b, err2 := strconv.ParseFloat(now[i][1], 64)
		if err != nil || err2 != nil || math.Abs(a-b) > b/20 {
			return false
		}
	}
	return true
}

func TestSameCost(t *testing.T) {
	const said = "| a | 17 | 20.0 MB |\n| b | 18 | 30.0 MB |\n"
	for measured, want := range map[string]bool{
		said: true, strings.Replace(said, "20.0", "20.9", 1): true, strings.Replace(said, "20.0", "21.2", 1): false, strings.Replace(said, "30.0", "28.0", 1): false,
		strings.Replace(said, "17", "18", 1): false, "": false, said + "| c | 1 | 1.0 MB |\n": false,
	} {
		if sameCost(said, measured) != want {
			t.Errorf("%q: %v", measured, !want)
		}
	}
}

// linked returns the modules, ours left out, and the number of their packages
// that a program links when it imports the package.
func linked(t *testing.T, importPath string) (modules []string, packages int) {
	t.Helper()
	const format = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}`
	cmd := exec.Command("go", "list", "-deps", "-f", format, importPath)
	// One platform, so that the document does not depend on the machine.
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v\n%s", importPath, err, stderr.String())
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			modules = append(modules, line)
		}
	}
	packages = len(modules)
	slices.Sort(modules)
	return slices.Compact(modules), packages
}

// TestLinked checks the measurement on a package whose answer is known.
func TestLinked(t *testing.T) {
	modules, packages := linked(t, "go.uber.org/zap")
	paths := make([]string, len(modules))
	for i, m := range modules {
		paths[i], _, _ = strings.Cut(m, " ")
	}
	if want := []string{"go.uber.org/multierr", "go.uber.org/zap"}; !slices.Equal(paths, want) || packages < 2 {
		t.Errorf("zap links %d packages of %q, want some of %q", packages, paths, want)
	}
}
