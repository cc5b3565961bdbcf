package deptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

// printedBy names the package and the test that compares what a page shows with what is printed, sent or accepted.
var printedBy = map[string]string{
	"demos/cron/README.md: $ make demo-cron":                                                                                "demos/cron TestReadme",
	"demos/fair-users/README.md: $ bin/fair-users":                                                                          "demos/fair-users TestReadme",
	"demos/payments/README.md: $ make demo-payments":                                                                        "demos/payments TestReadme",
	"demos/pods/README.md: $ bin/pods":                                                                                      "demos/pods TestReadme",
	"examples/fleet/README.md: $ make demo 2>&1 | cat":                                                                      "examples/fleet TestReadmeTranscript",
	"docs/limits.md: HTTP/1.1 429 Too Many Requests":                                                                        "internal/proof/pagerun TestRefusal",
	"docs/storage.md: $ etcdctl get --prefix --sort-by=CREATE /etcdkit/v1/payments/semaphore/charge/":                       "internal/proof/pagerun TestEtcdctl",
	"docs/storage.md: $ etcdctl lease timetolive --keys 09a3ccecb194b6ff":                                                   "internal/proof/pagerun TestEtcdctl",
	"docs/operations.md: --auto-compaction-mode=periodic --auto-compaction-retention=10m":                                   "internal/proof/pagerun TestFlagsOfEtcd",
	"docs/observability.md: time() - max(etcdkit_job_last_success_timestamp_seconds{etcdkit_name=\"nightly\"}) > 26 * 3600": "exporter TestQueriesOfThePage",
	"docs/observability.md: sum by (etcdkit_cluster, etcdkit_namespace, etcdkit_name) (rate(etcdkit_rate_calls_total{etcdkit_result=\"granted\"}[5m]))":                                                     "exporter TestQueriesOfThePage",
	"docs/observability.md: {{ range .Alerts }}https://ops.example.com/etcdkit/alert?{{ range .Labels.SortedPairs }}{{ .Name }}={{ .Value | urlquery }}&{{ end }} {{ end }}":                                "console TestEachAlertLeadsToItsPage",
	"internal/proof/mutants.md: In: internal/lease, (*window).open":                                                                                                                                         "internal/proof/deptest TestMutantOfThePage",
	"examples/quickstart/shell/README.md: $ etcdkit jobs run backup --cron '30 2 * * *' --zone Europe/Berlin -- ./backup.sh":                                                                                "examples/quickstart/shell TestPage",
	"examples/quickstart/shell/README.md: 30 2 * * *  set -a; . /etc/etcdkit.env; /usr/local/bin/etcdkit jobs run backup --cron '30 2 * * *' --zone Europe/Berlin --at-most 2h -- /usr/local/bin/backup.sh": "examples/quickstart/shell TestPage",
	"docs/model/requests.md: taken out            scenario   from  expected          result               states  seconds    MB  rule":                                                                      "internal/proof/deptest TestModel",
	"docs/model/README.md: taken out            scenario   from  expected          result               states  seconds    MB  rule":                                                                        "internal/proof/deptest TestModel",
}

// unchecked are the blocks that no test runs, compiles or parses, each with the reason. The list may only shrink.
var unchecked = map[string]string{
	"ARCHITECTURE.md: client ──▶ Session ──▶ primitive ──▶ Do(fn), or a handle":                                     "a picture",
	"docs/guarantees.md: holder   ● renewal sent                                  ● deadline = sent + TTL − margin": "a picture",
	"demos/payments/README.md: time               ──────────────────────────────────────────────────▶":              "pictures",
	"CONTRIBUTING.md: area: what changed": "the form of a commit's message",
	"docs/model/README.md: …":             "a part of what spin prints; make model",
}

// parseData parses a block of YAML or JSON, of which there may be several values.
func parseData(b pagecode.Block) error {
	next := yaml.NewDecoder(strings.NewReader(b.Text)).Decode
	if b.Lang == "json" {
		next = json.NewDecoder(bytes.NewReader([]byte(b.Text))).Decode
	}
	for {
		var value any
		if err := next(&value); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// blockBreaches are the blocks of a page that nothing checks, and the data that cannot be parsed. It marks the
// entries of lists that it has used.
func blockBreaches(name, page string, printed, left map[string]string, used map[string]bool) (found []string) {
	for _, b := range pagecode.Parse(page).Blocks {
		title := name + ": " + b.Title()
		switch {
		case b.Lang == "go", b.Shell(): // TestPagesCompile, TestPagesCommands
		case b.Lang == "yaml", b.Lang == "json":
			if err := parseData(b); err != nil {
				found = append(found, fmt.Sprintf("%s:%d: %v", name, b.Line, err))
			}
		case printed[title] != "", left[title] != "":
			used[title] = true
		default:
			found = append(found, fmt.Sprintf("%s:%d: no test runs, compiles or parses the block that begins with %q", name, b.Line, b.Title()))
		}
	}
	return found
}

// Every block of code on every page is run, compiled or parsed by a test, or is listed with the reason why not.
func TestPagesBlocks(t *testing.T) {
	used, all := map[string]bool{}, &catalog{modules: modules(t)}
	for name, page := range pages(t) {
		for _, breach := range blockBreaches(name, page, printedBy, unchecked, used) {
			t.Error(breach)
		}
	}
	for title, test := range printedBy {
		dir, name, _ := strings.Cut(test, " ")
		if err := all.test([]string{"./" + dir, "-run", "^" + name + "$"}, ""); err != nil {
			t.Errorf("%s: %v", title, err)
		}
	}
	for _, title := range slices.Concat(slices.Collect(maps.Keys(printedBy)), slices.Collect(maps.Keys(unchecked))) {
		if !used[title] {
			t.Errorf("no page has the block %q: take it from the list", title)
		}
	}
	t.Logf("%d blocks are compared with what is printed, %d are not checked", len(printedBy), len(unchecked))
}

// The mutant that the page shows as an example is one of the edits.
func TestMutantOfThePage(t *testing.T) {
	shown := ""
	for _, b := range pagecode.Parse(pages(t)["internal/proof/mutants.md"]).Blocks {
		if strings.HasPrefix(b.Text, "In: ") {
			shown = strings.TrimSpace(b.Text)
		}
	}
	files, err := filepath.Glob("../mutants/edits/*.txt")
	if err != nil || shown == "" {
		t.Fatalf("no such block on the page, or %v", err)
	}
	if !slices.ContainsFunc(files, func(name string) bool {
		text, err := os.ReadFile(name)
		return err == nil && strings.Contains(string(text), shown)
	}) {
		t.Errorf("no mutant has the edit of internal/proof/mutants.md:\n%s", shown)
	}
}

// A block that nothing checks is found out, and one that is no YAML or JSON.
func TestPagesBlocksFail(t *testing.T) {
	printed, left := map[string]string{"a.md: $ make demo": "examples/fleet TestReadme"}, map[string]string{"a.md: @Java": "no Java here"}
	for page, breaches := range map[string]int{
		"```go\nx\n```\n    make test\n":          0,
		"```text\n$ make demo\nok\n```\n":         0,
		"```java\n@Java\n```\n":                   0,
		"```yaml\na: 1\nb: [x, y]\n```\n":         0,
		"```json\n{\"a\": 1}\n{\"b\": []}\n```\n": 0,
		"```text\n$ make test\nok\n```\n":         1,
		"text\n\n    other --flag\n":              1,
		"```yaml\na: 1\n a: [x\n```\n":            1,
		"```json\n{\"a\": 1,}\n```\n":             1,
		"```\nx\n```\n":                           1,
	} {
		if got := blockBreaches("a.md", page, printed, left, map[string]bool{}); len(got) != breaches {
			t.Errorf("%q: breaches %q, want %d", page, got, breaches)
		}
	}
}
