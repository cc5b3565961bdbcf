package alertday

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/signals"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// every is the time between two samples.
const every = time.Second

// files are the rules.
var files = []string{"../../../docs/observability/alerts.yaml", "../../../docs/observability/fleet_alerts.yaml"}

// day returns how many samples the variable ALERTS_DAY asks for, and skips the test if there is none: a busy machine
// would have alerts of its own.
func day(t *testing.T) (samples int) {
	t.Helper()
	given := os.Getenv("ALERTS_DAY")
	if given == "" {
		t.Skip("ALERTS_DAY is not set: it takes minutes (make alerts-day)")
	}
	signals.Promtool(t)
	samples, err := strconv.Atoi(given)
	require.NoError(t, err, "ALERTS_DAY")
	return samples
}

// all returns the minutes at which the alerts of all files fire, or are pending or fire.
func (r *recording) all(t testing.TB, pending bool) map[string][]int {
	t.Helper()
	found := map[string][]int{}
	for _, file := range files {
		maps.Copy(found, r.alerts(t, file, pending))
	}
	return found
}

// What is recorded is what the rules see: an alert that is pending, one that fires, and one that has ended.
func TestAlerts(t *testing.T) {
	t.Parallel()
	signals.Promtool(t)
	up := prometheus.NewGauge(prometheus.GaugeOpts{Name: "etcdkit_exporter_up", ConstLabels: prometheus.Labels{"etcdkit_namespace": "pay"}})
	reg := prometheus.NewRegistry()
	reg.MustRegister(up)
	r, from := newRecording(), map[string]prometheus.Gatherer{"exporter": reg}
	for _, v := range []float64{1, 1, 0, 0, 0, 0, 1, 1} {
		up.Set(v)
		r.sample(t, from)
	}
	require.Equal(t, map[string][]int{"EtcdkitExporterDown": {2, 3, 4, 5}}, r.alerts(t, files[1], true))
	require.Equal(t, map[string][]int{"EtcdkitExporterDown": {4, 5}}, r.alerts(t, files[1], false))
	up.Set(0)
	r.sample(t, from)
	r.lasts("etcdkit_exporter", 1500)
	fires := r.alerts(t, only(t, files[1], "EtcdkitExporterDown"), false)["EtcdkitExporterDown"]
	require.Equal(t, []int{4, 5, 10, 1508}, append(slices.Clone(fires[:3]), fires[len(fires)-1]))
	require.Equal(t, 1569, minutes(t, "1d2h9m"))
}

// only writes a file with one alert of a file of rules, for a long recording of that one: promtool looks at each alert at
// each sample.
func only(t *testing.T, file, alert string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var rules struct{ Groups []map[string]any }
	require.NoError(t, yaml.Unmarshal(text, &rules))
	for _, group := range rules.Groups {
		group["rules"] = slices.DeleteFunc(group["rules"].([]any), func(rule any) bool { //nolint:forcetypeassert // as promtool has it
			return rule.(map[string]any)["alert"] != alert //nolint:forcetypeassert // as above
		})
	}
	text, err = yaml.Marshal(map[string]any{"groups": rules.Groups})
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "only.yaml")
	require.NoError(t, os.WriteFile(name, text, 0o600))
	return name
}

// longest returns the longest time without a break in a list of minutes.
func longest(at []int) (most int) {
	n := 0
	for i := range at {
		if n++; i > 0 && at[i] != at[i-1]+1 {
			n = 1
		}
		most = max(most, n)
	}
	return most
}

// longestFor returns the longest time, in minutes, for which an alert of the rules is pending before it fires.
func longestFor(t testing.TB) (most int) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^ +for: (\w+)$`).FindAllSubmatch(text, -1) {
			most = max(most, minutes(t, string(m[1])))
		}
	}
	require.Positive(t, most)
	return most
}

// A fleet that is healthy and busy, with what each demo does, has no alert at any sample of its day, and none that is pending
// at its end. The day is longer than any alert is pending: what was recorded is repeated.
func TestHealthyDay(t *testing.T) {
	samples := day(t)
	f := start(t, 1)
	time.Sleep(2 * every) // the first calls of all primitives
	r := newRecording()
	f.record(r, samples)
	f.end()
	r.repeat(t, longestFor(t)+60)
	t.Logf("%d series with %d samples, of which %d were recorded", len(r.series), r.samples, samples)
	require.Greater(t, r.samples, longestFor(t))
	require.Empty(t, r.all(t, false))
	for name, at := range r.all(t, true) {
		t.Logf("pending for %d minutes in sum, %d without a break: %s", len(at), longest(at), name)
		require.NotEqual(t, r.samples-1, at[len(at)-1], "%s is pending at the end", name)
	}
}

// A day that is repeated goes on: counters count on, also those that appeared in it, times are later, and what was not there is
// not there again.
func TestRepeat(t *testing.T) {
	t.Parallel()
	r := newRecording()
	r.samples = 4
	r.series = map[string][]string{
		`calls{}`:                 {"3", "5", "5", "9"},
		`lost{}`:                  {"_", "_", "1", "2"},
		`held{}`:                  {"1", "0", "2", "1"},
		`run_timestamp_seconds{}`: {"-60", "0", "60", "120"},
		`wait{}`:                  {"_", "7", "stale"},
	}
	r.grows = map[string]bool{`calls{}`: true, `lost{}`: true}
	r.repeat(t, 9)
	require.Equal(t, 12, r.samples)
	require.Equal(t, map[string][]string{
		`calls{}`:                 {"3", "5", "5", "9", "9", "11", "11", "15", "15", "17", "17", "21"},
		`lost{}`:                  {"_", "_", "1", "2", "2", "2", "2", "3", "3", "3", "3", "4"},
		`held{}`:                  {"1", "0", "2", "1", "1", "0", "2", "1", "1", "0", "2", "1"},
		`run_timestamp_seconds{}`: {"-60", "0", "60", "120", "180", "240", "300", "360", "420", "480", "540", "600"},
		`wait{}`:                  {"_", "7", "stale", "_", "_", "7", "stale", "_", "_", "7", "stale", "_"},
	}, r.series)
	require.Equal(t, 24*60, longestFor(t))
}

// judge requires that exactly the alerts of some faults fire, and none before them, which begin at that sample, and
// prints when.
func judge(t *testing.T, r *recording, begin int, faults ...fault) {
	t.Helper()
	fires, want := r.all(t, false), map[string]bool{}
	for _, c := range faults {
		var when []string
		for _, alert := range c.fires {
			want[alert] = true
			if at := fires[alert]; len(at) > 0 {
				when = append(when, fmt.Sprintf("%s after %d min", alert, at[0]-begin))
				require.GreaterOrEqual(t, at[0], begin, "%s: %s fires before the fault", c.name, alert)
			}
		}
		for _, alert := range c.may {
			if at := fires[alert]; len(at) > 0 {
				when = append(when, fmt.Sprintf("%s after %d min (may fire)", alert, at[0]-begin))
				require.GreaterOrEqual(t, at[0], begin, "%s: %s fires before the fault", c.name, alert)
			}
			delete(fires, alert)
		}
		t.Logf("%s: %s", c.name, strings.Join(when, ", "))
	}
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(fires)))
}

// Each fault that concerns one name fires the alerts that its rows on the page name, for this name, and no other: all of
// them are started in one fleet.
func TestFaults(t *testing.T) {
	day(t)
	f := start(t, 1)
	for _, c := range ofOne() {
		if c.prepare != nil {
			c.prepare(f)
		}
	}
	time.Sleep(2 * every)
	r := newRecording()
	f.precede(r, hours)
	f.record(r, before)
	begin := r.samples
	for _, c := range ofOne() {
		c.cause(f)
	}
	f.record(r, 75)
	f.end()
	judge(t, r, begin, ofOne()...)
}

// before is how long the fleet is healthy before the faults: for longer than the half hour at which EtcdkitElectionGone
// looks. Before that, elections have had their leaders for hours, of which this rule asks.
const (
	before = 40
	hours  = 180
)

// The same of faults that concern all names, each in a fleet of its own.
func TestFaultsOfAll(t *testing.T) {
	day(t)
	for _, c := range ofAll() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := start(t, max(1, c.members))
			time.Sleep(2 * every)
			r := newRecording()
			if c.later {
				f.precede(r, hours)
				f.record(r, before)
			} else {
				f.record(r, 5)
			}
			begin := r.samples
			c.cause(f)
			f.record(r, 35)
			f.end()
			if c.lasts != "" {
				r.lasts(c.lasts, 24*60)
			}
			judge(t, r, begin, c)
		})
	}
}

// Each row of the page has a fault that fires its alert, or is left out with a reason.
func TestEachRowHasAFault(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/observability.md")
	require.NoError(t, err)
	rows, caused := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| .* \| (Etcdkit\w+) [PFE] \|`).FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = true
	}
	for _, c := range all() {
		for _, alert := range c.fires {
			caused[strings.Fields(alert)[0]] = true
		}
	}
	for alert := range leftOut {
		require.False(t, caused[alert], alert)
		caused[alert] = true
	}
	require.Equal(t, slices.Sorted(maps.Keys(rows)), slices.Sorted(maps.Keys(caused)))
}

// ofOne are the faults that concern one name, or none.
func ofOne() []fault { return slices.Concat(faults, byHand, harmless) }

// all are all faults.
func all() []fault { return append(ofOne(), ofAll()...) }

// ofAll are the faults that concern all names.
func ofAll() []fault { return append(slices.Clone(faultsOfAll), scaledToZero) }

// leftOut are the alerts that no fault here fires, with the reason.
var leftOut = map[string]string{
	"EtcdkitNearQuota": "on metrics of etcd's server alone, of which a test's members share one registry: alerts_test.yaml has it",
}
