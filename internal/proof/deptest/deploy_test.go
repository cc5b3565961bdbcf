package deptest

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A459: a unit gives its service, which runs as a user of systemd's choice, what only root can read, and its page says
// what has to be there before it starts.
func TestUnitsFindTheirFiles(t *testing.T) {
	t.Parallel()
	const dir = "../../../docs/deploy/"
	page := readFile(t, dir+"README.md")
	for _, name := range []string{"export", "console"} {
		unit := readFile(t, dir+"etcdkit-"+name+"@.service")
		if !strings.Contains(unit, "\nDynamicUser=yes\n") {
			t.Errorf("%s: the service has a user whose files are known", name)
		}
		for variable, file := range map[string]string{"ETCDCTL_CACERT": "ca.crt", "ETCDCTL_CERT": "tls.crt", "ETCDCTL_KEY": "tls.key"} {
			if !strings.Contains(unit, "\nLoadCredential="+file+":/etc/etcdkit/"+name+"-%i/"+file+"\n") {
				t.Errorf("%s: systemd does not pass %s on", name, file)
			}
			if !strings.Contains(unit, variable+"=%d/"+file) {
				t.Errorf("%s: %s is not the copy of systemd", name, variable)
			}
		}
		if file := "/etc/etcdkit/" + name + "-%i.env"; !strings.Contains(unit, "\nEnvironmentFile="+file+"\n") {
			t.Errorf("%s: its file is not %s", name, file)
		}
		if !strings.Contains(page, name+"-payments.env") || !strings.Contains(unit, "README.md") {
			t.Errorf("%s: docs/deploy/README.md does not name its file, or the unit not the page", name)
		}
	}
}

// A780: the commands of the page leave no file that others than root can read: the one of a service may have etcd's password.
func TestDeployedFilesAreSecret(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skipf("bash is not installed: %v", err)
	}
	root := t.TempDir()
	_, page, _ := strings.Cut(readFile(t, "../../../docs/deploy/README.md"), "\n## systemd\n")
	block := regexp.MustCompile(`(?m)(^    .*\n)+`).FindString(page)
	commands := regexp.MustCompile(`(?m)^    systemctl .*\n`).ReplaceAllString(block, "")
	commands = strings.NewReplacer("/usr/local/bin/", root+"/bin/", "/etc/systemd/system/", root+"/units/", "/etc/", root+"/etc/").Replace(commands)
	for _, dir := range []string{"bin", "units", "files"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"etcdkit", "etcdkit-export@.service", "etcdkit-console@.service", "ca.crt", "tls.crt", "tls.key"} {
		if err := os.WriteFile(filepath.Join(root, "files", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("bash", "-c", "umask 022; set -e\n"+commands)
	cmd.Dir = filepath.Join(root, "files")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files := 0
	err := filepath.WalkDir(filepath.Join(root, "etc"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		if info, err := d.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
		return nil
	})
	if err != nil || files != 8 {
		t.Errorf("%d files of two services: %v", files, err)
	}
}

// A781: no two lines of a section of CHANGELOG.md begin alike: a merge has left both of its sides.
func TestChangesAreSaidOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for line := range strings.Lines(readFile(t, "../../../CHANGELOG.md")) {
		if strings.HasPrefix(line, "#") {
			clear(seen)
		}
		if begin := line[:min(len(line), 40)]; strings.HasPrefix(line, "- ") && seen[begin] {
			t.Errorf("twice: %s", begin)
		} else {
			seen[begin] = true
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A457: `make release-check` builds for all systems of goreleaser.
func TestReleaseCheckBuildsAllSystems(t *testing.T) {
	t.Parallel()
	list := func(key string) []string {
		m := regexp.MustCompile(key + `: \[(.*)\]`).FindStringSubmatch(readFile(t, "../../../.goreleaser.yaml"))
		if m == nil {
			t.Fatalf(".goreleaser.yaml has no %s", key)
		}
		return strings.Split(m[1], ", ")
	}
	want := map[string]bool{}
	for _, system := range list("goos") {
		for _, arch := range list("goarch") {
			want[system+"/"+arch] = true
		}
	}
	m := regexp.MustCompile(`for target in (.*); do`).FindStringSubmatch(readFile(t, "../../../.ci/release-check"))
	if m == nil {
		t.Fatal(".ci/release-check builds for no system")
	}
	got := strings.Fields(m[1])
	slices.Sort(got)
	if wanted := slices.Sorted(maps.Keys(want)); !slices.Equal(got, wanted) {
		t.Errorf(".ci/release-check builds for %v, goreleaser for %v", got, wanted)
	}
}

// A456: a release is compared with the one before it: with itself, on its own tag, no change is found. Where the former
// release cannot be found, nothing passes.
func TestReleaseCheckCompares(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"git", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("git or bash is not installed: %v", err)
		}
	}
	for name, tt := range map[string]struct {
		released string   // versions in CHANGELOG.md
		tags     []string // of the three commits, in order; "" for none
		ref      string
		want     string // "" if the check fails
	}{
		"no release":            {"", []string{"", "", ""}, "", "nothing"},
		"the first one":         {"0.1.0", []string{"", "", "v0.1.0"}, "", "nothing"},
		"the second one":        {"0.2.0 0.1.0", []string{"v0.1.0", "", "v0.2.0"}, "", "v0.1.0"},
		"the one after it":      {"0.2.0 0.1.0", []string{"v0.1.0", "v0.2.0", "v0.3.0"}, "", "v0.2.0"},
		"between two":           {"0.1.0", []string{"v0.1.0", "", ""}, "", "v0.1.0"},
		"after a candidate":     {"0.2.0 0.1.0", []string{"v0.1.0", "v0.2.0-rc.1", "v0.2.0"}, "", "v0.1.0"},
		"tags are missing":      {"0.1.0", []string{"", "", ""}, "", ""},
		"only its own tag":      {"0.2.0 0.1.0", []string{"", "", "v0.2.0"}, "", ""},
		"none is asked for":     {"0.1.0", []string{"", "", ""}, "none", "nothing"},
		"another is asked for":  {"0.1.0", []string{"", "", ""}, "HEAD^", "HEAD^"},
		"of a shallow clone":    {"0.1.0", []string{"v0.1.0", "", ""}, "shallow", ""},
		"a tag of another kind": {"", []string{"begin", "", ""}, "", "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := compared(t, tt.released, tt.tags, tt.ref)
			if (err == nil) != (tt.want != "") || err == nil && got != "compared with: "+tt.want+"\n" {
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

// compared returns what .ci/release-check compares a tree of three commits with.
func compared(t *testing.T, released string, tags []string, ref string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	run := func(dir, name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PARTS=compared", "REF="+strings.TrimPrefix(ref, "shallow"), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		out, err := cmd.Output()
		return string(out), err
	}
	must := func(name string, args ...string) {
		t.Helper()
		if _, err := run(dir, name, args...); err != nil {
			t.Fatalf("%s %v: %v", name, args, err)
		}
	}
	text := "# Changelog\n\n## [Unreleased]\n"
	for _, version := range strings.Fields(released) {
		text += "\n## [" + version + "] - 2027-01-01\n"
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil { //nolint:gosec // one of them is a script
			t.Fatal(err)
		}
	}
	write("CHANGELOG.md", text)
	write(".ci/release-check", readFile(t, "../../../.ci/release-check"))
	must("git", "init", "--quiet")
	must("git", "add", "-A")
	for _, tag := range tags {
		must("git", "commit", "--quiet", "--allow-empty", "-m", "change")
		if tag != "" {
			must("git", "tag", tag)
		}
	}
	if ref == "shallow" {
		clone := filepath.Join(t.TempDir(), "clone")
		must("git", "clone", "--quiet", "--depth=1", "file://"+dir, clone)
		return run(clone, "bash", ".ci/release-check")
	}
	return run(dir, "bash", ".ci/release-check")
}
