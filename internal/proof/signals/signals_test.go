package signals

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/etcdkit/etcdkit/internal/fleet"
)

// Labels are not metrics, wherever they are in a query.
func TestMetricsIn(t *testing.T) {
	t.Parallel()
	for query, want := range map[string][]string{
		`sum by (etcdkit_name) (rate(etcdkit_acquire_duration_seconds_count{etcdkit_reason="full"}[5m]))`: {"etcdkit_acquire_duration_seconds_count"},
		`etcdkit_held / on (kind, name) etcdkit_limit > 0.9`:                                              {"etcdkit_held", "etcdkit_limit"},
		`label_replace(etcdkit_up, "etcdkit_x", "$1", "name", "(.*)")`:                                    {"etcdkit_up"},
		`up{job="etcd"}`: nil,
	} {
		require.Equal(t, want, metricsIn(query), query)
	}
}

// A185 in internal/proof/tested-failures.md: a query asks for no metric, label or value that does not exist, and keeps
// the label of the etcd cluster.
func TestBreaches(t *testing.T) {
	t.Parallel()
	published := Metrics{"etcdkit_limit": {"etcdkit_namespace", "etcdkit_kind"}, "etcdkit_up": {"etcdkit_namespace"}, "etcdkit_x_bucket": {"etcdkit_namespace", "le"}}
	for query, want := range map[string][]string{
		`max by (etcdkit_cluster, etcdkit_kind) (etcdkit_limit{etcdkit_kind=~"semaphore|limiter",instance="a"}) > 1`: nil,
		`histogram_quantile(0.9, sum by (le, etcdkit_cluster) (rate(etcdkit_x_bucket[5m])))`:                         nil,
		`max by (instance) (etcd_size)`:                          nil,
		`etcdkit_limits`:                                         {"etcdkit_limits is not published"},
		`etcdkit_limit{etcdkit_name="a"}`:                        {"etcdkit_limit has no label etcdkit_name"},
		`etcdkit_limit{etcdkit_kind!~"semaphore|rates"}`:         {`no etcdkit_kind is "rates"`},
		`max by (etcdkit_cluster, etcdkit_name) (etcdkit_limit)`: {"by (etcdkit_name): etcdkit_limit has no such label"},
		`max by (etcdkit_kind) (etcdkit_limit)`:                  {"by (etcdkit_kind) drops etcdkit_cluster"},
		`sum by (le, etcdkit_cluster) (etcdkit_up) / max by (etcdkit_cluster, etcdkit_kind) (etcdkit_limit{instance=")x}\""})`:     {"by (le): etcdkit_up has no such label"},
		`etcdkit_limit and on (etcdkit_cluster, etcdkit_kind) etcdkit_up`:                                                          {"on (etcdkit_kind): etcdkit_up has no such label"},
		`sum by (etcdkit_cluster, etcdkit_kind) (etcdkit_limit and on (etcdkit_cluster, instance) etcdkit_up)`:                     nil,
		`sum by (etcdkit_cluster, etcdkit_kind) (etcdkit_up and on (etcdkit_cluster) etcdkit_limit)`:                               {"by (etcdkit_kind): etcdkit_up has no such label"},
		`sum by (etcdkit_cluster, etcdkit_kind) (etcdkit_limit unless on (etcdkit_cluster) etcdkit_limit or etcdkit_up offset 5m)`: {"by (etcdkit_kind): etcdkit_up has no such label"},
	} {
		require.Equal(t, want, breaches(query, published), query)
	}
	require.Equal(t, []string{"etcdkit_name"}, unkept(rule{Expr: "max by (instance) (x)", Annotations: annotations{Summary: "{{ $labels.instance }} {{ $labels.etcdkit_name }}"}}))
}

// The words that labels may have are those of the packages that write them.
func TestWords(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("../../../observe/*.go")
	require.NoError(t, err)
	want := map[string][]string{"etcdkit_kind": {"limiter_total"}, "etcdkit_policy": words["etcdkit_policy"]}
	for s := fleet.InProgress; s < fleet.Stages; s++ {
		want["etcdkit_state"] = append(want["etcdkit_state"], s.String())
	}
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
				if typed, ok := v.Type.(*ast.Ident); ok {
					value, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
					require.NoError(t, err)
					label := "etcdkit_" + strings.ToLower(typed.Name)
					want[label] = append(want[label], value)
				}
			}
			return true
		})
	}
	for label, values := range want {
		require.ElementsMatch(t, values, words[label], label)
	}
	require.Len(t, words, len(want))
}

// A row has a fault, an alert and a first step, once, and the section above it.
func TestRowsOf(t *testing.T) {
	t.Parallel()
	rows, wrong := rowsOf("# A page\n## Exporter and etcd\n| fault | alert | first step |\n|---|---|---|\n"+
		"| it is away | EtcdkitExporterDown F | look |\n|  | EtcdkitSeriesDropped P | look |\n| it is away | EtcdkitExporterDown F | look |\n", "url")
	require.Equal(t, map[string]string{"EtcdkitExporterDown": "url#exporter-and-etcd F", "EtcdkitSeriesDropped": "url#exporter-and-etcd P"}, rows)
	require.Len(t, wrong, 2)
}

// skipped is a test that is skipped.
type skipped struct {
	testing.TB
	why string
}

func (*skipped) Helper() {}

func (s *skipped) Skip(args ...any) {
	s.why = fmt.Sprint(args...)
	runtime.Goexit()
}

// The unit tests of the delivered rules pass. promtool reads nothing but these files: the gate runs this test if one of
// them has changed. It would evaluate all rules of a file at each minute of each unit test, a minute of processor time;
// here each unit test has the rules that it names, as TestOnlyNamedRules says. `make alerts`, a part of `make verify`, has
// all: it also fails for a rule that cannot be evaluated on the series of a unit test of another one.
func TestRulesOfAlerts(t *testing.T) {
	t.Parallel()
	const folder = "../../../docs/observability/"
	files, err := filepath.Glob(folder + "*alerts*_test.yaml")
	require.NoError(t, err)
	for _, of := range []string{"alerts_test.yaml", "alerts_healthy_test.yaml", "fleet_alerts_test.yaml", "fleet_alerts_healthy_test.yaml", "fleet_week_alerts_test.yaml"} {
		require.Contains(t, files, folder+of)
	}
	dir, divided := t.TempDir(), []string(nil)
	for _, file := range files {
		divided = append(divided, divide(t, file, dir)...)
	}
	promtool(t, "test", "rules", divided...)
}

// divide writes the unit tests of a file into files of their own, those that name the same rules into one, beside a file
// of these rules. It returns their paths.
func divide(t *testing.T, file, dir string) (paths []string) {
	t.Helper()
	var tests struct {
		Files []string `yaml:"rule_files"`
		Every string   `yaml:"evaluation_interval"`
		Tests []map[string]any
		Rest  map[string]any `yaml:",inline"`
	}
	read(t, file, &tests)
	require.Empty(t, tests.Rest, "it would be lost")
	require.Len(t, tests.Files, 1)
	var rules struct {
		Groups []map[string]any
	}
	read(t, filepath.Join(filepath.Dir(file), tests.Files[0]), &rules)
	byNames := map[string][]map[string]any{}
	for _, test := range tests.Tests {
		names := namedIn(test)
		byNames[strings.Join(names, " ")] = append(byNames[strings.Join(names, " ")], test)
	}
	base := strings.TrimSuffix(filepath.Base(file), "_test.yaml")
	write := func(name string, what any) {
		text, err := yaml.Marshal(what)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	for i, names := range slices.Sorted(maps.Keys(byNames)) {
		of, test := fmt.Sprintf("%s_%d.yaml", base, i), fmt.Sprintf("%s_%d_test.yaml", base, i)
		write(of, map[string]any{"groups": only(rules.Groups, strings.Fields(names))})
		write(test, map[string]any{"rule_files": []string{of}, "evaluation_interval": tests.Every, "tests": byNames[names]})
		paths = append(paths, filepath.Join(dir, test))
	}
	return paths
}

var (
	alertName  = regexp.MustCompile(`\bEtcdkit[A-Z]\w*`)
	namesAlert = regexp.MustCompile(`ALERTS\{[^}]*\balertname=~?"Etcdkit\w+(\|Etcdkit\w+)*"`) // no pattern
)

// namedIn returns the alerts that a unit test asks for, or none if it asks for any alert.
func namedIn(test map[string]any) (names []string) {
	cases, _ := test["alert_rule_test"].([]any)
	for _, c := range cases {
		names = append(names, c.(map[string]any)["alertname"].(string))
	}
	queries, _ := test["promql_expr_test"].([]any)
	for _, q := range queries {
		expr := q.(map[string]any)["expr"].(string)
		if len(namesAlert.FindAllString(expr, -1)) < strings.Count(expr, "ALERTS") {
			return nil
		}
		names = append(names, alertName.FindAllString(expr, -1)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// only returns groups of rules with those of some alerts, or with all if there are none.
func only(groups []map[string]any, alerts []string) (kept []map[string]any) {
	if len(alerts) == 0 {
		return groups
	}
	for _, g := range groups {
		g = maps.Clone(g)
		g["rules"] = slices.DeleteFunc(slices.Clone(g["rules"].([]any)), func(r any) bool {
			return !slices.Contains(alerts, r.(map[string]any)["alert"].(string))
		})
		if len(g["rules"].([]any)) > 0 {
			kept = append(kept, g)
		}
	}
	return kept
}

// A unit test keeps the rules that it names, and all rules if it asks for any alert. None is lost.
func TestOnlyNamedRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unit := func(name, asks string) string { return "  - {name: " + name + ", interval: 1m, " + asks + "}\n" }
	require.NoError(t, os.WriteFile(filepath.Join(dir, "r.yaml"), []byte("groups:\n  - name: g\n    interval: 30s\n    rules:\n      - {alert: EtcdkitA, expr: a, for: 5m}\n      - {alert: EtcdkitB, expr: b}\n  - name: h\n    rules:\n      - {alert: EtcdkitC, expr: c}\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x_test.yaml"), []byte("rule_files: [r.yaml]\nevaluation_interval: 2m\ntests:\n"+
		unit("one", "alert_rule_test: [{eval_time: 1m, alertname: EtcdkitA}, {eval_time: 2m, alertname: EtcdkitA}]")+
		unit("same", "promql_expr_test: [{expr: 'ALERTS{alertname=\"EtcdkitA\"}', eval_time: 3m}]")+
		unit("two", "alert_rule_test: [{eval_time: 1m, alertname: EtcdkitC}], promql_expr_test: [{expr: 'ALERTS{alertname=~\"EtcdkitA|EtcdkitC\"}', eval_time: 1m}]")+
		unit("pattern", "alert_rule_test: [{eval_time: 1m, alertname: EtcdkitA}], promql_expr_test: [{expr: 'ALERTS{alertname=~\"Etcdkit.*\"}', eval_time: 1m}]")+
		unit("begins", "promql_expr_test: [{expr: 'ALERTS{alertname=~\"EtcdkitA|EtcdkitB.*\"}', eval_time: 1m}]")+
		unit("any", "alert_rule_test: [{eval_time: 1m, alertname: EtcdkitA}], promql_expr_test: [{expr: 'ALERTS{alertname=\"EtcdkitA\"} or ALERTS', eval_time: 1m}]")), 0o600))
	got := map[string]string{}
	for _, path := range divide(t, filepath.Join(dir, "x_test.yaml"), t.TempDir()) {
		var tests struct {
			Files []string `yaml:"rule_files"`
			Every string   `yaml:"evaluation_interval"`
			Tests []struct{ Name, Interval string }
		}
		read(t, path, &tests)
		require.Equal(t, "2m", tests.Every)
		var rules struct {
			Groups []struct {
				Name, Interval string
				Rules          []struct{ Alert, Expr, For string }
			}
		}
		read(t, filepath.Join(filepath.Dir(path), tests.Files[0]), &rules)
		for _, test := range tests.Tests {
			require.Equal(t, "1m", test.Interval)
			got[test.Name] = fmt.Sprint(rules.Groups)
		}
	}
	const a, all = "[{g 30s [{EtcdkitA a 5m}]}", "[{g 30s [{EtcdkitA a 5m} {EtcdkitB b }]} {h  [{EtcdkitC c }]}]"
	require.Equal(t, map[string]string{
		"one": a + "]", "same": a + "]", "two": a + " {h  [{EtcdkitC c }]}]", "any": all, "pattern": all, "begins": all,
	}, got)
}

// A313: where promtool is not installed, what it would run is skipped, with a reason that a report can show.
func TestWithoutPromtool(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s := &skipped{TB: t}
	var ended sync.WaitGroup
	ended.Go(func() { Promtool(s) })
	ended.Wait()
	require.Equal(t, "promtool is not installed (make alerts says how to get it)", s.why)
}
