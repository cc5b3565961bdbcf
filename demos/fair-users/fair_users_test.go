package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

func TestMain(m *testing.M) { progtest.Main(m, main, childEnv) }

// published are metrics that scrapes of a run with -metrics show: of the state in etcd, and of what a process reports.
var published = []string{
	`etcdkit_held{etcdkit_kind="limiter_total",etcdkit_name="\w+",etcdkit_namespace="fair-users-\w+"\} [1-9]`,
	`etcdkit_acquire_duration_seconds_count\{.*instance="[^"]+"\} [1-9]`,
}

// run is a run in this process; the gateways and the model are processes of their own.
func run(t *testing.T, args ...string) outcome {
	t.Helper()
	last := progtest.Run(t, parseFlags, demonstrate, published, args...)
	broken := progtest.Broken(last.Violations, " of the users' waits is ")
	if len(broken) > 0 || last.OK != (len(last.Violations) == 0) {
		t.Errorf("%q", broken)
	}
	return last
}

func TestFairUsers(t *testing.T) {
	if testing.Short() {
		t.Skip("users send requests for 3 s in each of two ways: 15 s")
	}
	t.Parallel()
	o := run(t, "-only", "queue|limit", "-load", "3s", "-metrics", "127.0.0.1:0")
	if len(o.ways()) != 2 || len(o.ByUser.Users) != 20 || len(o.Steps) != 0 {
		t.Errorf("%+v", o)
	}
}

// Permits of stuck handlers end, and flows end in another process. On an etcd of the user's own
// nothing is left.
func TestFlows(t *testing.T) {
	t.Parallel()
	etcd := progtest.Etcd(t)
	o := run(t, etcd.Flags("-only", "never|flows")...)
	if len(o.ways()) != 0 || len(o.Steps) != 17 {
		t.Errorf("%d steps: %+v", len(o.Steps), o)
	}
}

// TestFrame: the program as its user runs it.
func TestFrame(t *testing.T) { progtest.Frame(t, "fair-users") }

func TestFlags(t *testing.T) {
	t.Parallel()
	progtest.Flags(t, parseFlags, map[string]bool{
		"":            true,
		"-users 1":    true,
		"-users 21":   false,
		"-greedy 48":  true,
		"-greedy 47":  false,
		"-load 2s":    false,
		"-ttl 5s":     true,
		"-ttl 4s":     false,
		"-ttl 5500ms": false,
		"-timeout 0s": false,
		"-only flows": true,
		"-only (":     false,
		"more":        false,
	})
}

// good is an outcome in which every promise was kept.
func good() *outcome {
	users := func(p95 float64) []usage { return []usage{{User: "user-01", Served: 3, Peak: 1, P95: p95}} }
	return &outcome{
		Users: 1, AtOnce: 48, Total: total, PerUser: perUser,
		OneQueue: &shared{Peak: total, Greedy: usage{User: greedy, Served: 100, Peak: total, P95: 2}, Users: users(2), P50: 1.9, P95: 2},
		ByUser:   &shared{Peak: total, Greedy: usage{User: greedy, Served: 50, Peak: perUser, P95: 4}, Users: users(0.01), P50: 0.01, P95: 0.01},
		Steps:    []step{{What: "permits of this user", Got: "0", Want: "0"}},
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*outcome)
		wrong  string // empty: kept
	}{
		"kept":                      {func(*outcome) {}, ""},
		"above the total":           {func(o *outcome) { o.ByUser.Peak++ }, "13 requests ran at the same time, the total is 12"},
		"above the limit of a user": {func(o *outcome) { o.ByUser.Greedy.Peak++ }, "5 requests of greedy ran at the same time, the limit is 4"},
		"a request failed":          {func(o *outcome) { o.OneQueue.Failed = 1 }, "1 requests failed"},
		"a user got nothing":        {func(o *outcome) { o.ByUser.Users[0].Served = 0 }, "no request of user-01 was served"},
		"nothing shown":             {func(o *outcome) { o.OneQueue.Greedy.Peak = perUser }, "the demo shows nothing"},
		"users wait":                {func(o *outcome) { o.ByUser.P50 = 0.95 }, "the median of the users' waits is 0.950 s"},
		"users wait as long":        {func(o *outcome) { o.ByUser.P95 = 1.9 }, "want less than the median with one queue of 1.900 s"},
		"a step":                    {func(o *outcome) { o.Steps[0].Got = "1 (flow-1 at gateway-1)" }, "permits of this user: 1 (flow-1 at gateway-1), want 0"},
	} {
		o := good()
		c.change(o)
		o.judge()
		if wrong := strings.Join(o.Violations, "; "); o.OK != (c.wrong == "") || !strings.Contains(wrong, c.wrong) || len(o.Violations) > 1 {
			t.Errorf("%s: %q, want %q", name, wrong, c.wrong)
		}
	}
}

// The README shows what the program prints.
func TestReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	o := good()
	o.OneQueue.Users, o.ByUser.Users = nil, nil
	o.judge()
	var printed bytes.Buffer
	o.Write(&printed)
	for _, line := range strings.Split(printed.String(), "\n") {
		if strings.HasPrefix(line, "p95 wait") || strings.HasPrefix(line, "Every promise") || strings.HasPrefix(line, "      ") {
			if !strings.Contains(string(page), line+"\n") {
				t.Errorf("the README has no line %q", line)
			}
		}
	}
}
