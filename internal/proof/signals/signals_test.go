package signals

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

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

// The unit tests of the delivered rules pass. promtool needs a minute of processor time for them, and reads nothing but
// these files: the gate runs this test if one of them has changed.
func TestRulesOfAlerts(t *testing.T) {
	t.Parallel()
	const folder = "../../../docs/observability/"
	files, err := filepath.Glob(folder + "*alerts*_test.yaml")
	require.NoError(t, err)
	for _, of := range []string{"alerts_test.yaml", "alerts_healthy_test.yaml", "fleet_alerts_test.yaml", "fleet_alerts_healthy_test.yaml", "fleet_week_alerts_test.yaml"} {
		require.Contains(t, files, folder+of)
	}
	promtool(t, "test", "rules", files...)
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
