package alertday

import (
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// minute is what a sample stands for.
const minute = time.Minute

// recording is the series that were sampled.
type recording struct {
	begun   time.Time
	samples int
	series  map[string][]string // by name and labels; "_" for no sample
}

func newRecording() *recording {
	return &recording{begun: time.Now(), series: map[string][]string{}}
}

// sample adds a sample of each series of the registries, whose key is the label instance.
func (r *recording) sample(t testing.TB, from map[string]prometheus.Gatherer) {
	t.Helper()
	for instance, g := range from {
		families, err := g.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				r.add(f, m, instance)
			}
		}
	}
	r.samples++
}

// scale is how much longer a sample's time is on the day than it was.
const scale = float64(minute / every)

func (r *recording) add(f *dto.MetricFamily, m *dto.Metric, instance string) {
	labels := []string{fmt.Sprintf("instance=%q", instance)}
	for _, l := range m.GetLabel() {
		if l.GetValue() != "" {
			labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
	}
	put := func(name string, value float64, more ...string) {
		key := name + "{" + strings.Join(slices.Concat(labels, more), ",") + "}"
		for len(r.series[key]) < r.samples {
			r.series[key] = append(r.series[key], "_")
		}
		r.series[key] = append(r.series[key], strconv.FormatFloat(value, 'f', -1, 64))
	}
	name := f.GetName()
	switch {
	case f.GetType() == dto.MetricType_HISTOGRAM:
		h := m.GetHistogram()
		put(name+"_sum", h.GetSampleSum())
		put(name+"_count", float64(h.GetSampleCount()))
		for _, b := range h.GetBucket() {
			put(name+"_bucket", float64(b.GetCumulativeCount()), fmt.Sprintf("le=%q", strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)))
		}
		put(name+"_bucket", float64(h.GetSampleCount()), `le="+Inf"`)
	case strings.HasSuffix(name, "_timestamp_seconds"): // promtool's time begins with 0
		put(name, math.Round((m.GetGauge().GetValue()-float64(r.begun.UnixMilli())/1000)*scale))
	case strings.HasPrefix(name, "etcdkit_oldest_"):
		put(name, m.GetGauge().GetValue()*scale)
	default:
		put(name, m.GetGauge().GetValue()+m.GetCounter().GetValue())
	}
}

// firing returns the alerts of a file of rules that fire at the end of the recording, or that would with longer patience:
// without `for`, what is pending fires.
func (r *recording) firing(t testing.TB, rulesFile string, pending bool) []string {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	if pending {
		text = regexp.MustCompile(`(?m)^ +for: .*\n`).ReplaceAll(text, nil)
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	require.NoError(t, yaml.Unmarshal(text, &rules))
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), text, 0o600))
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [rules.yaml]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n")
	for _, key := range slices.Sorted(maps.Keys(r.series)) {
		fmt.Fprintf(&b, "      - {series: %s, values: %s}\n", quoted(key), quoted(strings.Join(r.series[key], " ")))
	}
	fmt.Fprintf(&b, "    alert_rule_test:\n")
	for _, g := range rules.Groups {
		for _, rule := range g.Rules {
			fmt.Fprintf(&b, "      - {eval_time: %dm, alertname: %s}\n", r.samples-1, rule.Alert)
		}
	}
	file := filepath.Join(dir, "day.yaml")
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
	out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput()
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`alertname: ?(\w+), time`).FindAllStringSubmatch(string(out), -1) {
		found[m[1]] = true
	}
	require.Equal(t, err != nil, len(found) > 0, "%s", out)
	return slices.Sorted(maps.Keys(found))
}

// quoted writes a text for YAML.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
