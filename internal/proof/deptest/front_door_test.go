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
	"strings"
	"testing"
)

// doorBreaches are what a newcomer would miss on the README: a program that compiles as it is
// pasted, the line of Go that it needs, and a link to each page.
func doorBreaches(readme, goLine string, pages []string) (found []string) {
	if block := goBlock.FindStringSubmatch(readme); block == nil || !strings.HasPrefix(block[1], "package main\n\nimport (") {
		found = append(found, "the first program does not begin with package main and its imports")
	}
	if badge := "badge/Go-" + goLine + "+-"; !strings.Contains(readme, badge) {
		found = append(found, "no badge says Go "+goLine+", as go.mod does")
	}
	for _, page := range pages {
		if !strings.Contains(readme, "]("+page+")") && !strings.Contains(readme, "]("+page+"#") {
			found = append(found, "no link leads to "+page)
		}
	}
	return found
}

// goLine returns the line of Go that go.mod asks for.
func goLine(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(source)
	if line == nil {
		t.Fatal("go.mod has no line of Go")
	}
	return string(line[1])
}

// The README shows the whole first program, and the way to every page below docs and beside it.
func TestFrontDoor(t *testing.T) {
	all := pages(t)
	var linked []string
	for name := range all {
		if dir := path.Dir(name); name != "README.md" && (dir == "." || dir == "docs") {
			linked = append(linked, name)
		}
	}
	for _, breach := range doorBreaches(all["README.md"], goLine(t), linked) {
		t.Errorf("README.md: %s", breach)
	}
	const fine = "badge/Go-1.26+-blue [a](docs/a.md) [b](docs/b.md#c)\n```go\npackage main\n\nimport (\n)\n```\n"
	for readme, breaches := range map[string]int{
		fine: 0, strings.Replace(fine, "package main", "func run()", 1): 1, strings.Replace(fine, "1.26", "1.25", 1): 1,
		strings.Replace(fine, "docs/a.md", "docs/c.md", 1): 1, "": 4,
	} {
		if got := doorBreaches(readme, "1.26", []string{"docs/a.md", "docs/b.md"}); len(got) != breaches {
			t.Errorf("%q: breaches %q, want %d", readme, got, breaches)
		}
	}
}

// versionBreaches compares the table of SUPPORT.md with what is tested: the line of Go and the floor of go.mod, and
// the other line of etcd.
func versionBreaches(support, goLine, floor, other string) (found []string) {
	for _, row := range []string{
		"| Go | " + goLine + " | " + goLine + " | |",
		"| etcd client | " + floor + " and later " + floor[:strings.LastIndex(floor, ".")] + "; " + other + " | " + floor + "; " + other + " with `-short` | |",
	} {
		if !strings.Contains(support, row+"\n") {
			found = append(found, "SUPPORT.md does not have the row "+row)
		}
	}
	return found
}

// The versions that SUPPORT.md names are those of the modules that are tested.
func TestSupportedVersions(t *testing.T) {
	const client = "go.etcd.io/etcd/client/v3"
	floor, other := goMod(t, "../../../go.mod").direct()[client], goMod(t, "../../../.ci/etcd37.mod").direct()[client]
	for _, breach := range versionBreaches(pages(t)["SUPPORT.md"], goLine(t), strings.TrimPrefix(floor, "v"), strings.TrimPrefix(other, "v")) {
		t.Error(breach)
	}
	const fine = "| Go | 1.26 | 1.26 | |\n| etcd client | 3.6.16 and later 3.6; 3.7.3 | 3.6.16; 3.7.3 with `-short` | |\n"
	for support, breaches := range map[string]int{fine: 0, strings.Replace(fine, "3.7.3 |", "3.7.2 |", 1): 1, strings.Replace(fine, "1.26", "1.25", 1): 1, "": 2} {
		if got := versionBreaches(support, "1.26", "3.6.16", "3.7.3"); len(got) != breaches {
			t.Errorf("%q: breaches %q, want %d", support, got, breaches)
		}
	}
}

// moduleLines are the commands by which the README makes a module use a clone.
var moduleLines = regexp.MustCompile(`(?m)(?:^    go mod .*\n)+`)

// unreachable is how go says that it has no way to a module.
var unreachable = regexp.MustCompile(`dial tcp|module lookup disabled|TLS handshake timeout|no such host`)

// A newcomer pastes the first program into an empty folder and types what the README says. They get the client of etcd
// that is tested: go mod tidy alone takes the newest one, with which embedtest does not compile. TestFirstOutput of
// examples/quickstart/first runs the program.
func TestReadmeInAnEmptyFolder(t *testing.T) {
	if testing.Short() {
		t.Skip("it may need modules that are not there")
	}
	readme := pages(t)["README.md"]
	program, lines := goBlock.FindStringSubmatch(readme), moduleLines.FindString(readme)
	if program == nil || lines == "" {
		t.Fatal("README.md has no program, or no commands that make a module use a clone")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program[1]), 0o644); err != nil {
		t.Fatal(err)
	}
	command := func(line string) string {
		t.Helper()
		args := strings.Fields(strings.ReplaceAll(line, "/path/to/the/clone", root))
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		// It may need modules that the build of this test does not.
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOSUMDB=off", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if unreachable.Match(out) {
			t.Skipf("modules cannot be downloaded here: %s", out)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	command("go mod init example.com/empty")
	for line := range strings.Lines(lines) {
		command(strings.TrimSpace(line))
	}
	want := goMod(t, "../../../go.mod").direct()["go.etcd.io/etcd/client/v3"]
	if got := command("go list -m -f {{.Version}} go.etcd.io/etcd/client/v3"); got != want {
		t.Errorf("the module has etcd's client %s, want %s", got, want)
	}
}

// A figure is one of the README, and where the page of benchmarks has it: a table by the beginning of its
// head, a row, and a column.
type figure struct {
	readme, table, row string
	column             int
}

// cell returns a cell of a table on a page.
func cell(page string, f figure) string {
	_, table, found := strings.Cut(page, "\n| "+f.table+" |")
	table, _, _ = strings.Cut(table, "\n\n")
	_, row, found2 := strings.Cut(table, "\n| "+f.row+" | ")
	row, _, _ = strings.Cut(row, "\n")
	cells := strings.Split(row, " | ")
	if !found || !found2 || f.column >= len(cells) {
		return ""
	}
	return strings.TrimSuffix(cells[f.column], " |")
}

// figureBreaches compares the figures of the README with the page that make bench-docs writes. The README
// has them as the page does, but for µs that are ms here, and a share that is a percentage.
func figureBreaches(readme, page string, figures []figure) (found []string) {
	for _, f := range figures {
		got := cell(page, f)
		if got == "" {
			found = append(found, fmt.Sprintf("no page of benchmarks has a row %q below %q", f.row, f.table))
			continue
		}
		var value float64
		fmt.Sscan(got, &value)
		said := []string{got, fmt.Sprintf("%.2f ms", value/1000), fmt.Sprintf("%.0f %%", value*100), fmt.Sprintf("%.0f,%03.0f", float64(int(value)/1000), float64(int(value)%1000))}
		if !slices.ContainsFunc(said, func(s string) bool { return f.readme == s }) {
			found = append(found, fmt.Sprintf("the README says %s for %q, %q; the page of benchmarks has %s", f.readme, f.table, f.row, got))
		}
		if !strings.Contains(readme, f.readme) {
			found = append(found, fmt.Sprintf("the README does not say %s, which is %q of %q", f.readme, f.row, f.table))
		}
	}
	return found
}

// The figures of the README are those of the last make bench-docs, beside their peers.
func TestReadmeFigures(t *testing.T) {
	const lock, free, short, requests = "limit 1, 1 ms of work, 8 processes | per s", "acquire and release a free permit | each, µs",
		"limit 10, 1 ms of work, 8 processes, 128 callers | per s", "new idempotent requests, 512 in flight | per s"
	figures := []figure{
		{"445", lock, "ours", 0}, {"79", lock, "etcd Mutex", 0}, {"578", lock, "redislock always", 0},
		{"1.44 ms", free, "ours", 0}, {"1.20 ms", free, "create + delete", 0}, {"0.47 ms", free, "redislock always", 0},
		{"11,553", requests, "ours", 0}, {"38,980", requests, "Redis always", 0},
		{"24 %", short, "ours", 1}, {"91 %", short, "ours, Handover", 1},
	}
	var tables []byte
	for _, name := range []string{"docs/benchmarks.md", "docs/benchmarks/README.md"} {
		page, err := os.ReadFile("../../../" + name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		tables = append(tables, page...)
	}
	for _, breach := range figureBreaches(pages(t)["README.md"], string(tables), figures) {
		t.Error(breach)
	}
	const page = "\n| work | each, µs |\n|---|---|\n| ours | 926 | – |\n| theirs | 0.344 |\n\n| other | each |\n|---|---|\n| mine | 10413 |\n\n"
	for _, tt := range []struct {
		f    figure
		want int
	}{
		{figure{"0.93 ms", "work", "ours", 0}, 0}, {figure{"34 %", "work", "theirs", 0}, 0}, {figure{"10,413", "other", "mine", 0}, 0},
		{figure{"0.92 ms", "work", "ours", 0}, 2}, {figure{"926", "work", "ours", 0}, 1}, {figure{"926", "work", "mine", 0}, 1}, {figure{"926", "none", "ours", 0}, 1},
	} {
		if got := figureBreaches("0.93 ms, 34 %, 10,413", page, []figure{tt.f}); len(got) != tt.want {
			t.Errorf("%v: breaches %q, want %d", tt.f, got, tt.want)
		}
	}
}
