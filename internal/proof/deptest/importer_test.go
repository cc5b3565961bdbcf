package deptest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// importer is a module outside this repository.
type importer struct {
	t   *testing.T
	dir string
}

// The two programs differ by etcdkit.
const (
	withClient = `package main

import clientv3 "go.etcd.io/etcd/client/v3"

func main() { _, _ = clientv3.New(clientv3.Config{}) }
`
	withConcurrency = `package main

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
)

func main() {
	ctx := context.Background()
	client, _ := clientv3.New(clientv3.Config{})
	s, _ := concurrency.NewSession(ctx, client, "prod", nil)
	sem, _ := concurrency.NewSemaphore(s, "calls", 3, nil)
	_ = sem.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil })
}
`
)

func newImporter(t *testing.T, program string, requirement ...string) importer {
	t.Helper()
	im := importer{t, t.TempDir()}
	if err := os.WriteFile(filepath.Join(im.dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	im.run("mod", "init", "example.com/importer")
	im.run(append([]string{"mod", "edit"}, requirement...)...)
	im.run("mod", "tidy")
	return im
}

// run runs the go command in the module, as for linux/amd64. It skips the test if a module cannot be downloaded.
func (im importer) run(args ...string) string {
	im.t.Helper()
	cmd := exec.CommandContext(im.t.Context(), "go", args...)
	cmd.Dir = im.dir
	flags := "GOFLAGS="
	if strings.Contains(os.Getenv("GOFLAGS"), "-trimpath") { // what is compiled already has this flag
		flags += "-trimpath"
	}
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", flags, "GOSUMDB=off", "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if unreachable.MatchString(stderr.String()) {
		im.t.Skipf("modules cannot be downloaded here: %s", stderr.String())
	}
	if err != nil {
		im.t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// row is the module's row in the table: the packages and modules that its program links besides etcdkit, the requirements in its go.mod,
// the lines in its go.sum, and the size of the program without symbols.
func (im importer) row(name string) string {
	im.t.Helper()
	im.run("build", "-ldflags=-s -w", "-o", "program", ".")
	info, err := os.Stat(filepath.Join(im.dir, "program"))
	if err != nil {
		im.t.Fatal(err)
	}
	packages, linked := 0, map[string]bool{}
	for line := range strings.Lines(im.run("list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", ".")) {
		if m := strings.TrimSpace(line); m != "" && m != module {
			packages, linked[m] = packages+1, true
		}
	}
	sums, err := os.ReadFile(filepath.Join(im.dir, "go.sum"))
	if err != nil {
		im.t.Fatal(err)
	}
	required := len(goMod(im.t, filepath.Join(im.dir, "go.mod")).Require)
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %.1f MB |\n", name, packages, len(linked), required, bytes.Count(sums, []byte("\n")), float64(info.Size())/1e6)
}
