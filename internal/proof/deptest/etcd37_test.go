package deptest

import (
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestETCD37 holds the requirements that `make etcd37` builds with to those of
// go.mod: they differ in etcd's version and in what only etcd chooses.
func TestETCD37(t *testing.T) {
	for _, breach := range modBreaches(goMod(t, "../../../go.mod"), goMod(t, "../../../.ci/etcd37.mod")) {
		t.Errorf(".ci/etcd37.mod: %s; run make etcd37-sync", breach)
	}
}

// gomod is the part of `go mod edit -json` that is needed.
type gomod struct {
	Go      string
	Require []struct {
		Path, Version string
		Indirect      bool
	}
}

// direct returns the versions of what the module's own code imports.
func (m gomod) direct() map[string]string {
	versions := map[string]string{}
	for _, r := range m.Require {
		if !r.Indirect {
			versions[r.Path] = r.Version
		}
	}
	return versions
}

func goMod(t *testing.T, file string) (m gomod) {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", file).Output()
	if err != nil {
		t.Fatalf("go mod edit -json %s: %v", file, err)
	}
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatalf("go mod edit -json %s: %v", file, err)
	}
	return m
}

func modBreaches(floor, newer gomod) []string {
	var found []string
	if floor.Go != newer.Go {
		found = append(found, "go "+newer.Go+", and go.mod says "+floor.Go)
	}
	want, got := floor.direct(), newer.direct()
	for _, path := range slices.Sorted(maps.Keys(want)) {
		version := got[path]
		switch {
		case version == "":
			found = append(found, path+" is missing")
		case strings.HasPrefix(path, "go.etcd.io/etcd/"):
			if !strings.HasPrefix(version, "v3.7.") {
				found = append(found, path+" "+version+" is not of the 3.7 line")
			}
		case version != want[path]:
			found = append(found, path+" "+version+", and go.mod says "+want[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(got)) {
		if want[path] == "" {
			found = append(found, path+" is not in go.mod")
		}
	}
	return found
}

func TestETCD37Fails(t *testing.T) {
	parse := func(text string) (m gomod) {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	floor := parse(`{"Go": "1.26.0", "Require": [
		{"Path": "go.etcd.io/etcd/client/v3", "Version": "v3.6.16"},
		{"Path": "go.uber.org/zap", "Version": "v1.28.0"},
		{"Path": "google.golang.org/grpc", "Version": "v1.83.2"},
		{"Path": "go.etcd.io/bbolt", "Version": "v1.4.3", "Indirect": true}]}`)
	good := parse(`{"Go": "1.26.0", "Require": [
		{"Path": "go.etcd.io/etcd/client/v3", "Version": "v3.7.3"},
		{"Path": "go.uber.org/zap", "Version": "v1.28.0"},
		{"Path": "google.golang.org/grpc", "Version": "v1.83.2"},
		{"Path": "go.etcd.io/bbolt", "Version": "v1.5.0", "Indirect": true}]}`)
	if got := modBreaches(floor, good); len(got) != 0 {
		t.Errorf("a good file is refused: %q", got)
	}
	bad := parse(`{"Go": "1.25.0", "Require": [
		{"Path": "go.etcd.io/etcd/client/v3", "Version": "v3.6.16"},
		{"Path": "go.uber.org/zap", "Version": "v1.27.1"},
		{"Path": "pgregory.net/rapid", "Version": "v1.3.0"}]}`)
	if got := modBreaches(floor, bad); len(got) != 5 {
		t.Errorf("breaches %q, want: go, etcd's line, zap's version, no grpc, rapid too many", got)
	}
}
