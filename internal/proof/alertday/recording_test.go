package alertday

import (
	"bytes"
	"cmp"
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
	series  map[string][]string // by name and labels; "_" for no sample, "stale" for the first one after some
	grows   map[string]bool     // series of counters
}

func newRecording() *recording {
	return &recording{begun: time.Now(), series: map[string][]string{}, grows: map[string]bool{}}
}

// sample adds a sample of each series of the registries, whose key is the label instance. A series that is not there any
// more is marked as stale, as Prometheus does.
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
	for key, values := range r.series {
		if n := len(values); n < r.samples && values[n-1] != "stale" && values[n-1] != "_" {
			r.series[key] = append(values, "stale")
		}
	}
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
		r.series[key] = append(r.series[key], number(value))
		if f.GetType() == dto.MetricType_HISTOGRAM || f.GetType() == dto.MetricType_COUNTER {
			r.grows[key] = true
		}
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

func number(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }

// repeat has the fleet do the same again until the recording has so many samples at least: counters count on, and times are
// later.
func (r *recording) repeat(t testing.TB, samples int) {
	t.Helper()
	times := (samples + r.samples - 1) / r.samples
	for key, values := range r.series {
		values = slices.Concat(values, slices.Repeat([]string{"_"}, r.samples-len(values)))
		at := slices.IndexFunc(values, isNumber)
		last := at
		for i, v := range values {
			if isNumber(v) {
				last = i
			}
		}
		var more float64 // of each time
		switch {
		case r.grows[key]:
			more = parsed(t, values[last]) - parsed(t, values[at])
		case strings.Contains(key, "_timestamp_seconds{"):
			more = float64(r.samples) * minute.Seconds()
		}
		out := slices.Clone(values)
		for n := 1; n < times; n++ {
			for i, v := range values {
				switch {
				case isNumber(v):
					v = number(parsed(t, v) + float64(n)*more)
				case r.grows[key] && i < at: // it was counted in the time before
					v = number(parsed(t, values[at]) + float64(n)*more)
				}
				out = append(out, v)
			}
		}
		r.series[key] = out
	}
	r.samples *= times
}

func isNumber(v string) bool { return v != "_" && v != "stale" }

func parsed(t testing.TB, v string) float64 {
	t.Helper()
	value, err := strconv.ParseFloat(v, 64)
	require.NoError(t, err)
	return value
}

// lasts repeats the last sample of the series that an expression matches for so many minutes, and forgets all others.
func (r *recording) lasts(expr string, minutes int) {
	match := regexp.MustCompile(expr)
	for key, values := range r.series {
		if !match.MatchString(key) {
			delete(r.series, key)
			continue
		}
		last := "_"
		if len(values) == r.samples {
			last = values[r.samples-1]
		}
		r.series[key] = append(values, slices.Repeat([]string{last}, minutes)...)
	}
	r.samples += minutes
}

// alerts returns the minutes, from the beginning of the recording on, at which each alert of a file of rules fires, or is
// pending or fires: without `for`, what is pending fires. The key is the alert and, if it has one, the name of what it is
// about.
func (r *recording) alerts(t testing.TB, rulesFile string, pending bool) map[string][]int {
	t.Helper()
	rules, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	if pending {
		rules = regexp.MustCompile(`(?m)^ +for: .*\n`).ReplaceAll(rules, nil)
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), rules, 0o600))
	file := filepath.Join(dir, "day.yaml")
	require.NoError(t, os.WriteFile(file, []byte(r.test(t, rules)), 0o600))
	out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput()
	found, seen := map[string][]int{}, false
	alert, at := "", 0
	for _, m := range failed.FindAllStringSubmatch(string(out), -1) {
		if m[1] != "" {
			alert, at = m[1], minutes(t, m[2])
			continue
		}
		seen = true
		key := alert
		if of := named.FindStringSubmatch(m[3]); of != nil {
			key += " " + of[1]
		}
		if !slices.Contains(found[key], at) {
			found[key] = append(found[key], at)
		}
	}
	require.Equal(t, err != nil, seen, "%s", out)
	return found
}

var (
	failed = regexp.MustCompile(`alertname: ?(\w+), time: ?(\w+),|Labels:\{(.*)\}`)
	named  = regexp.MustCompile(`etcdkit_name="([^"]*)"`)
)

// minutes returns the minutes of a time as Prometheus writes it, such as 1d2h3m.
func minutes(t testing.TB, text string) (n int) {
	t.Helper()
	days, rest, ok := strings.Cut(text, "d")
	if ok {
		d, err := strconv.Atoi(days)
		require.NoError(t, err, text)
		n = d * 24 * 60
	} else {
		rest = text
	}
	d, err := time.ParseDuration(cmp.Or(rest, "0s"))
	require.NoError(t, err, text)
	return n + int(d/time.Minute)
}

// test returns a unit test of promtool which fails for each alert that fires at a sample.
func (r *recording) test(t testing.TB, rulesFile []byte) string {
	t.Helper()
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	require.NoError(t, yaml.Unmarshal(rulesFile, &rules))
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [rules.yaml]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n")
	for _, key := range slices.Sorted(maps.Keys(r.series)) {
		if name, _, _ := strings.Cut(key, "{"); !bytes.Contains(rulesFile, []byte(name)) {
			continue // no rule reads it
		}
		fmt.Fprintf(&b, "      - {series: %s, values: %s}\n", quoted(key), quoted(strings.Join(r.series[key], " ")))
	}
	fmt.Fprintf(&b, "    alert_rule_test:\n")
	for _, g := range rules.Groups {
		for _, rule := range g.Rules {
			for at := range r.samples {
				fmt.Fprintf(&b, "      - {eval_time: %dm, alertname: %s}\n", at, rule.Alert)
			}
		}
	}
	return b.String()
}

// quoted writes a text for YAML.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
