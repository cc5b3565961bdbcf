package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/signals"
)

const root = "../../.."

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		main()
		return
	}
	embedtest.Main(m)
}

// A whole fleet has three hundred names, each once, and each at two processes.
func TestNames(t *testing.T) {
	t.Parallel()
	all := fleetOf(1)
	require.Len(t, all, 300)
	seen := map[string]bool{}
	for _, i := range all {
		require.False(t, seen[i.String()], i)
		seen[i.String()] = true
		require.Len(t, slices.Compact(slices.Clone(i.homes)), 2)
	}
}

// A minute of the rules lasts for -minute in all of their times and in their bounds in seconds. Parts, counts and the
// difference of clocks stay as they are.
func TestCompress(t *testing.T) {
	t.Parallel()
	for from, to := range map[string]string{
		"        for: 15m\n": "        for: 90000ms\n",
		"increase(etcdkit_session_lost_total[10m])) > 0\n":      "increase(etcdkit_session_lost_total[60000ms])) > 0\n",
		"max_over_time(x[1d] offset 10m)\n":                     "max_over_time(x[8640000ms] offset 60000ms)\n",
		"max by (a) (etcdkit_oldest_wait_seconds{b}) > 60\n":    "max by (a) (etcdkit_oldest_wait_seconds{b}) > 6\n",
		"(a_seconds_bucket[10m]))) > 10\n":                      "(a_seconds_bucket[60000ms]))) > 5\n",
		"(x_duration_seconds_bucket{le=\"0.5\"}[10m])) > 2.5\n": "(x_duration_seconds_bucket{le=\"0.5\"}[60000ms])) > 2.5\n",
		"(etcdkit_process_clock_skew_seconds) > 2\n":            "(etcdkit_process_clock_skew_seconds) > 2\n",
		"unknown_of_one_scope) > 20\n":                          "unknown_of_one_scope) > 20\n",
		"(x_duration_seconds_count[15m])) >= 10\n":              "(x_duration_seconds_count[90000ms])) >= 10\n",
		"        for: 1m\n":                                     "        for: 6000ms\n",
		"(x)[1h:5m]) >= 5\n":                                    "(x)[360000ms:30000ms]) >= 5\n",
		"(up)[3h:5m] offset 30m) >= 30\n":                       "(up)[60000ms:6000ms] offset 180000ms) >= 8\n",
		"time() - (x_timestamp_seconds) < 900\n":                "time() - (x_timestamp_seconds) < 90\n",
		"- 2 * (x_timestamp_seconds) > 600)\n":                  "- 2 * (x_timestamp_seconds) > 60)\n",
		"(x_clock_skew_seconds) > 2) >= 10)\n":                  "(x_clock_skew_seconds) > 2) >= 10)\n",
	} {
		require.Equal(t, to, compress(from, 6*time.Second))
	}
	require.Equal(t, "for: 6000ms", compress("for: 1m", 2*time.Second), "a range needs samples")
	dir := t.TempDir()
	files, err := writeRules(root, dir, 6*time.Second)
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotRegexp(t, `(\[|:|offset |for: )\d+[smhd]\b`, string(text))
		require.NotRegexp(t, `(?m)_seconds[^\n]* [<>] (10|120|600|900|3600)\)*$`, string(text))
		require.NotContains(t, string(text), ">= 30", "no rule asks for three hours")
	}
	t.Run("promtool check rules", func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), signals.Promtool(t), append([]string{"check", "rules"}, files...)...).CombinedOutput() //nolint:gosec // of this test
		require.NoError(t, err, "%s", out)
	})
}

// A seed chooses the same faults at the same times again, each with a name of its own; another one chooses others.
func TestPlan(t *testing.T) {
	t.Parallel()
	names := fleetOf(1)
	describe := func(seed uint64) (out []string) {
		taken := map[string]bool{}
		for _, p := range plan(seed, faults, names, 5, time.Minute) {
			require.False(t, taken[p.on.name])
			taken[p.on.name] = true
			require.Less(t, p.after, time.Minute)
			out = append(out, p.name+p.on.name+p.after.String())
		}
		return out
	}
	seen := map[string]bool{}
	for seed := range uint64(20) {
		require.Len(t, describe(seed), 5)
		require.Equal(t, describe(seed), describe(seed))
		seen[strings.Join(describe(seed), "")] = true
	}
	require.Len(t, seen, 20)
	all := plan(1, faults, names, len(faults), 0)
	require.Len(t, all, len(faults))
	require.True(t, slices.IsSortedFunc(all, func(a, b planned) int { return a.turn - b.turn }), "a restart would end other faults")
}

// The first step of each fault shows its cause, in the command and on the console, and its remedy can be taken: without
// Prometheus, which make night ARGS="-check" needs.
func TestFirstSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for jobs and for the lease of a process that is killed: half a minute")
	}
	if os.Getenv("EMBEDTEST_ENDPOINTS") != "" {
		t.Skip("its fleet has an etcd of its own")
	}
	t.Parallel()
	verb := filepath.Join(t.TempDir(), "etcdkit")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", verb, "../../../cmd/etcdkit").CombinedOutput()
	require.NoError(t, err, "%s", out)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := config{seed: 1, minute: time.Minute, part: 10, blind: true, period: 2 * time.Second, etcdkit: verb, root: root}
	n, err := begin(ctx, c)
	require.NoError(t, err)
	defer n.stop()
	for _, apart := range []bool{false, true} {
		all := slices.DeleteFunc(plan(c.seed, faults, n.names, len(faults), 0), func(p planned) bool { return p.apart != apart })
		for _, p := range all {
			require.NoError(t, p.cause(ctx, n, p.on), "%s: %s", p.name, p.on)
		}
		for _, p := range all {
			require.NoError(t, n.leads(ctx, p), "%s: %s", p.name, p.on)
		}
		for _, p := range all {
			require.NoError(t, p.mend(ctx, n, p.on), "%s: %s", p.name, p.on)
		}
	}
}

// Each alert of a fault has a row on the page, and each verb of a first step exists.
func TestAlertsOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/observability.md"))
	require.NoError(t, err)
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| .* \| (Etcdkit\w+) [PFE] \|`).FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = true
	}
	for _, f := range faults {
		require.NotEmpty(t, f.fires, f.name)
		for _, alert := range slices.Concat(f.fires, f.may) {
			require.True(t, rows[strings.Fields(alert)[0]], "%s: %s", f.name, alert)
		}
	}
	require.GreaterOrEqual(t, len(faults), 8)
}
