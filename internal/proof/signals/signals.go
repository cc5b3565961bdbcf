// Package signals holds alert rules of Prometheus and dashboards of Grafana to the metrics that a package
// publishes. Where promtool is installed, it checks their syntax as well and runs the unit tests of the
// rules; elsewhere these subtests are skipped.
package signals

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

type rule struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations annotations
}

type annotations struct {
	Summary, Description string
	Runbook              string `yaml:"runbook_url"`
}

// Rules checks a file of alert rules and the files of its unit tests: every metric of this library in them is
// one of the published ones and has the labels that the rule names, each alert says what is wrong and what to do, and
// has a test in which it fires and one in which it is silent. It returns the metrics of the rules. TestRulesOfAlerts runs
// the unit tests.
func Rules(t *testing.T, rulesFile string, testsFiles []string, published Metrics) (used []string) {
	t.Helper()
	var rules struct{ Groups []struct{ Rules []rule } }
	read(t, rulesFile, &rules)
	tested := map[string]map[bool]bool{}
	for _, file := range testsFiles {
		testedBy(t, file, tested)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			require.Empty(t, breaches(r.Expr, published), r.Alert)
			used = append(used, metricsIn(r.Expr)...)
			require.Empty(t, unkept(r), "%s: labels in its texts that its expression does not keep", r.Alert)
			require.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations.Summary, r.Alert)
			require.NotEmpty(t, r.Annotations.Description, r.Alert)
			require.Equal(t, map[bool]bool{true: true, false: true}, tested[r.Alert], "%s: whether a test has it fire, and whether one has it silent", r.Alert)
			delete(tested, r.Alert)
		}
	}
	require.Empty(t, tested, "tests of alerts that do not exist")
	require.NotEmpty(t, used)
	promtool(t, "check", "rules", rulesFile)
	return used
}

var label = regexp.MustCompile(`\$labels\.(\w+)`)

// unkept returns the labels in the texts of a rule that no grouping of its expression keeps.
func unkept(r rule) (dropped []string) {
	_, lists := parse(r.Expr)
	for _, m := range label.FindAllStringSubmatch(r.Annotations.Summary+r.Annotations.Description, -1) {
		if !slices.ContainsFunc(lists, func(g grouping) bool { return g.word == "by" && slices.Contains(g.labels, m[1]) }) {
			dropped = append(dropped, m[1])
		}
	}
	return dropped
}

// testedBy adds the alerts of a file of unit tests, with whether they fire there.
func testedBy(t testing.TB, file string, tested map[string]map[bool]bool) {
	t.Helper()
	var tests struct {
		Tests []struct {
			Cases []struct {
				Alert    string `yaml:"alertname"`
				Expected []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	read(t, file, &tests)
	for _, test := range tests.Tests {
		for _, c := range test.Cases {
			if tested[c.Alert] == nil {
				tested[c.Alert] = map[bool]bool{}
			}
			tested[c.Alert][len(c.Expected) > 0] = true
		}
	}
}

// Runbook checks the tables of a page, whose columns are the fault, the alert and the first step: each alert of the
// files has one row, in the section to which the alert's runbook_url leads, and there is no row of another alert. Behind
// the alert is the mark of its file, or E if its rule is on etcd's own metrics alone.
func Runbook(t testing.TB, page, url string, rulesFiles map[string]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	leads := map[string]string{}
	for mark, file := range rulesFiles {
		var rules struct{ Groups []struct{ Rules []rule } }
		read(t, file, &rules)
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				require.NotContains(t, leads, r.Alert)
				of := mark
				if len(metricsIn(r.Expr)) == 0 {
					of = "E"
				}
				leads[r.Alert] = r.Annotations.Runbook + " " + of
			}
		}
	}
	rows, missing := rowsOf(string(text), url)
	require.Empty(t, missing)
	require.Equal(t, leads, rows, "alerts with their runbook_url and mark, and rows of the page with their sections")
}

var (
	heading = regexp.MustCompile(`^#+ (.+)$`)
	row     = regexp.MustCompile(`^\| (.*) \| (Etcdkit\w+) ([PFE]) \| (.*) \|$`)
	noPart  = regexp.MustCompile(`[^a-z0-9 -]`)
)

// rowsOf returns the alerts in the tables of a page with the address of their section and their mark, and the rows in
// which a column is empty, or that come twice.
func rowsOf(page, url string) (at map[string]string, wrong []string) {
	at = map[string]string{}
	section := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if m := heading.FindStringSubmatch(line); m != nil {
			section = strings.ReplaceAll(noPart.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if _, twice := at[m[2]]; twice || strings.TrimSpace(m[1]) == "" || strings.TrimSpace(m[4]) == "" {
			wrong = append(wrong, line)
		}
		at[m[2]] = url + "#" + section + " " + m[3]
	}
	return at, wrong
}

// Dashboard checks a dashboard: every metric of this library in it is one of the published ones and has the labels that
// the query names, each panel says which question it answers, and the queries have no variable but the cluster, the
// namespace and the interval. It returns the metrics of the panels.
func Dashboard(t *testing.T, file string, published Metrics) (used []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var d struct {
		Panels []struct {
			ID                 int
			Title, Description string
			Targets            []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &d))
	ids, queries := map[int]bool{}, "groups:\n  - name: dashboard\n    rules:\n"
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "the ID of panel %q", p.Title)
		ids[p.ID] = true
		require.Contains(t, p.Description, "?", p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.NotEmpty(t, metricsIn(target.Expr), target.Expr)
			require.Empty(t, breaches(target.Expr, published), p.Title)
			used = append(used, metricsIn(target.Expr)...)
			expr := filled.Replace(target.Expr)
			require.NotContains(t, expr, "$", "a variable that the dashboard does not have")
			queries += fmt.Sprintf("      - {record: panel%d, expr: %q}\n", p.ID, expr)
		}
	}
	checked := filepath.Join(t.TempDir(), "queries.yaml")
	require.NoError(t, os.WriteFile(checked, []byte(queries), 0o600))
	promtool(t, "check", "rules", checked)
	return used
}

// filled replaces the variables of a dashboard by what selects everything.
var filled = strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$cluster", ".*")

// Panel returns the query of a panel, by its number, for all clusters and namespaces.
func Panel(t testing.TB, file string, id int) string {
	t.Helper()
	var d struct {
		Panels []struct {
			ID      int
			Targets []struct{ Expr string }
		}
	}
	read(t, file, &d)
	for _, p := range d.Panels {
		if p.ID == id {
			return filled.Replace(p.Targets[0].Expr)
		}
	}
	t.Fatalf("%s has no panel %d", file, id)
	return ""
}

// Answers checks what a query returns ten minutes after the beginning of some series, which have a value each minute:
// series with their values, in the form of promtool.
func Answers(t *testing.T, query string, series, want map[string]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("evaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n")
	for _, name := range slices.Sorted(maps.Keys(series)) {
		fmt.Fprintf(&b, "      - {series: %q, values: %q}\n", name, series[name])
	}
	fmt.Fprintf(&b, "    promql_expr_test:\n      - expr: %q\n        eval_time: 10m\n        exp_samples:\n", query)
	for _, labels := range slices.Sorted(maps.Keys(want)) {
		fmt.Fprintf(&b, "          - {labels: %q, value: %s}\n", labels, want[labels])
	}
	file := filepath.Join(t.TempDir(), "query.yaml")
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	promtool(t, "test", "rules", file)
}

// Query checks a query of a page: every metric of this library in it is one of the published ones.
func Query(t *testing.T, query string, published Metrics) {
	t.Helper()
	require.NotEmpty(t, metricsIn(query), query)
	require.Empty(t, breaches(query, published), query)
	rules := filepath.Join(t.TempDir(), "query.yaml")
	require.NoError(t, os.WriteFile(rules, fmt.Appendf(nil, "groups:\n  - name: page\n    rules:\n      - {alert: Page, expr: %q}\n", query), 0o600))
	promtool(t, "check", "rules", rules)
}

// Shown checks that each published metric is used in a rule or a panel, but for those that are not meant to
// be.
func Shown(t testing.TB, published Metrics, used []string, except ...string) {
	t.Helper()
	base := func(name string) string {
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if s, ok := strings.CutSuffix(name, part); ok {
				return s
			}
		}
		return name
	}
	missing := map[string]bool{}
	for name := range published {
		missing[base(name)] = true
	}
	for _, name := range used {
		delete(missing, base(name))
	}
	slices.Sort(except)
	require.Equal(t, except, slices.Sorted(maps.Keys(missing)), "metrics in no panel and no alert")
}

func read(t testing.TB, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), file)
}

// Promtool returns the path of promtool, and skips the test where it is not installed.
func Promtool(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (make alerts says how to get it)")
	}
	return path
}

// promtool runs promtool as a subtest, so that the report of the run names it where it is skipped.
func promtool(t *testing.T, verb, what string, args ...string) {
	t.Helper()
	t.Run("promtool "+verb+" "+what, func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), Promtool(t), append([]string{verb, what}, args...)...).CombinedOutput() //nolint:gosec // of the tests
		require.NoError(t, err, "%s", out)
	})
}

// Compose checks a file for Docker Compose: every file that it mounts exists and can be read, and Prometheus
// finds the files of rules that its configuration names.
func Compose(t *testing.T, file string) {
	t.Helper()
	var compose struct {
		Services map[string]struct {
			Image   string
			Volumes []string
		}
	}
	read(t, file, &compose)
	inside := map[string]string{}
	for name, s := range compose.Services {
		require.NotEmpty(t, s.Image, name)
		for _, v := range s.Volumes {
			parts := strings.Split(v, ":")
			require.Len(t, parts, 3, v)
			source := filepath.Join(filepath.Dir(file), parts[0])
			var content any
			read(t, source, &content) // JSON is YAML, too
			inside[parts[1]] = source
		}
	}
	config := inside["/etc/prometheus/prometheus.yml"]
	require.NotEmpty(t, config)
	var prometheus struct {
		RuleFiles []string `yaml:"rule_files"`
	}
	read(t, config, &prometheus)
	for _, f := range prometheus.RuleFiles {
		require.Contains(t, inside, f)
	}
	require.NotEmpty(t, prometheus.RuleFiles)
	promtool(t, "check", "config", "--syntax-only", config)
}
