package deptest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

// runs are the programs whose calls in blocks are run as the page has them. What runs the others is in ways.
var runs = []string{"etcdkit", "etcdctl", "etcdutl", "etcdkit-dev", "curl"}

// ranBy names the package and the test that runs the calls of a program in the blocks of a page.
var ranBy = map[string]string{
	"docs/cli.md: etcdkit":                             "cmd/etcdkit/internal/cli TestPagesRun",
	"docs/console.md: etcdkit":                         "cmd/etcdkit/internal/cli TestPagesRun",
	"docs/observability.md: curl":                      "internal/proof/pagerun TestMetricsByCurl",
	"docs/operations.md: etcdctl":                      "internal/proof/pagerun TestEtcdctl",
	"docs/storage.md: etcdctl":                         "internal/proof/pagerun TestEtcdctl",
	"examples/quickstart/README.md: etcdctl":           "internal/proof/pagerun TestEtcdctl",
	"examples/quickstart/shell/README.md: etcdctl":     "internal/proof/pagerun TestEtcdctl",
	"examples/quickstart/shell/README.md: etcdkit":     "examples/quickstart/shell TestPage",
	"examples/quickstart/shell/README.md: etcdkit-dev": "examples/quickstart/shell TestPage",
}

// ranByMake are those that a target of make runs: they need machines, or what a gate cannot have.
var ranByMake = map[string]string{
	"docs/runbook.md: etcdkit":    "runbook",
	"docs/runbook.md: etcdctl":    "runbook",
	"docs/runbook.md: etcdutl":    "runbook",
	"docs/operations.md: etcdutl": "runbook",
}

// runBreaches are the calls of a page in blocks that nothing runs. It marks the entries that it has used.
func runBreaches(name, page string, used map[string]bool, lists ...map[string]string) (found []string) {
	for _, call := range pagecode.Parse(page).Calls() {
		title := name + ": " + call.Words[0]
		if call.Span || !slices.Contains(runs, call.Words[0]) || used[title] {
			continue
		}
		used[title] = true
		if !slices.ContainsFunc(lists, func(list map[string]string) bool { return list[title] != "" }) {
			found = append(found, fmt.Sprintf("%s:%d: no test runs the calls of %s", name, call.Line, call.Words[0]))
		}
	}
	return found
}

// Each call of a page in a block is run by a test, or by a target of make.
func TestPagesAreRun(t *testing.T) {
	used, all := map[string]bool{}, newCatalog(t)
	for name, page := range pages(t) {
		if classOf(name) == "design" {
			continue // what was tried then
		}
		for _, breach := range runBreaches(name, page, used, ranBy, ranByMake) {
			t.Error(breach)
		}
	}
	for title, test := range ranBy {
		dir, name, _ := strings.Cut(test, " ")
		if err := all.test([]string{"./" + dir, "-run", "^" + name + "$"}, ""); err != nil || !used[title] {
			t.Errorf("%s: used %v, %v", title, used[title], err)
		}
	}
	for title, target := range ranByMake {
		if err := all.make([]string{target}); err != nil || !used[title] {
			t.Errorf("%s: used %v, %v", title, used[title], err)
		}
	}
	list := map[string]string{"a.md: etcdkit": "x"}
	for page, breaches := range map[string]int{
		"    etcdkit ls\n": 0, "`etcdctl get a`\n": 0, "    make test\n": 0, "    etcdctl get a\n    etcdctl get b\n": 1, "```text\n$ curl a\n```\n": 1,
	} {
		if got := runBreaches("a.md", page, map[string]bool{}, list); len(got) != breaches {
			t.Errorf("%q: breaches %q, want %d", page, got, breaches)
		}
	}
}
