package deptest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is measured into docs/dependencies.md")

const (
	dependenciesDoc   = "../../../docs/dependencies.md"
	dependenciesBegin = "<!-- measured: begin -->\n"
	dependenciesEnd   = "<!-- measured: end -->\n"
)

// TestDependenciesDoc holds docs/dependencies.md to what a program that
// imports only concurrency links. Run it with -update to write the list anew.
func TestDependenciesDoc(t *testing.T) {
	if !slices.ContainsFunc(repository(t).files, func(f file) bool { return f.dir == "concurrency" && !f.test }) {
		t.Skip("there is no package concurrency yet")
	}
	modules, packages := linked(t, module+"/concurrency")
	for _, m := range modules {
		if within(strings.Fields(m)[0], "go.etcd.io/etcd/server/v3", "go.etcd.io/bbolt", "go.etcd.io/raft/v3",
			"github.com/stretchr/testify", "go.uber.org/goleak", "pgregory.net/rapid") {
			t.Errorf("a program that imports only concurrency links %s", m)
		}
	}

	measured := fmt.Sprintf("%d packages of %d modules:\n\n| module | version |\n|---|---|\n", packages, len(modules))
	for _, m := range modules {
		measured += "| " + strings.Replace(m, " ", " | ", 1) + " |\n"
	}
	raw, err := os.ReadFile(dependenciesDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), dependenciesBegin)
	_, after, ok2 := strings.Cut(rest, dependenciesEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no lines %q and %q", dependenciesDoc, dependenciesBegin, dependenciesEnd)
	}
	want := before + dependenciesBegin + measured + dependenciesEnd + after
	if string(raw) == want {
		return
	}
	if !*update {
		t.Fatalf("docs/dependencies.md is out of date; run: go test ./internal/proof/deptest -run TestDependenciesDoc -update\nmeasured now: %s", measured)
	}
	if err := os.WriteFile(dependenciesDoc, []byte(want), 0o644); err != nil {
		t.Fatal(err)
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
