package deptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A770: golden records of a release never change, and each release has some. The check read them as they were in the tree: a
// commit that wrote them again, or removed them, passed.
func TestReleaseCheckKeepsRecords(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"git", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("git or bash is not installed: %v", err)
		}
	}
	const folder, changelog = "internal/proof/stored/testdata/", "# Changelog\n\n## [Unreleased]\n"
	for name, tt := range map[string]struct {
		files map[string]string // what the commit after v0.1.0 writes
		want  string            // in the complaint; "" if it passes
	}{
		"nothing":             {nil, ""},
		"a record is changed": {map[string]string{folder + "0.1.0/records.jsonl": "{}\n{}\n"}, "never change"},
		"a release without":   {map[string]string{"CHANGELOG.md": changelog + "\n## [0.2.0] - 2027-02-02\n"}, "make golden-records VERSION=0.2.0"},
		"an empty file":       {map[string]string{folder + "0.1.0/records.jsonl": ""}, "make golden-records VERSION=0.1.0"},
		"another file there":  {map[string]string{folder + "0.1.0/more.jsonl": "{}\n"}, "never change"},
		"a release with some": {map[string]string{"CHANGELOG.md": changelog + "\n## [0.2.0] - 2027-02-02\n", folder + "0.2.0/records.jsonl": "{}\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := map[string]string{
				".ci/release-check": readFile(t, "../../../.ci/release-check"), "CHANGELOG.md": changelog + "\n## [0.1.0] - 2027-01-01\n",
				folder + "0.1.0/records.jsonl": "{}\n",
			}
			out, err := keptAfter(t, first, tt.files)
			if (err == nil) != (tt.want == "") || !strings.Contains(out, tt.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// keptAfter returns what the part kept says of a commit after a release.
func keptAfter(t *testing.T, release, next map[string]string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	run := func(name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PARTS=kept", "REF=", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(args ...string) {
		t.Helper()
		if out, err := run("git", args...); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	commit := func(files map[string]string) {
		t.Helper()
		for name, text := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil { //nolint:gosec // one of them is a script
				t.Fatal(err)
			}
		}
		must("add", "-A")
		must("commit", "--quiet", "--allow-empty", "-m", "change")
	}
	must("init", "--quiet")
	commit(release)
	must("tag", "v0.1.0")
	commit(next)
	return run("bash", ".ci/release-check")
}
