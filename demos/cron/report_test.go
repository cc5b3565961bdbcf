package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// The README shows what the program prints of the run that it is from; "…" stands for the history.
func TestReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, output, _ := strings.Cut(string(page), "$ make demo-cron\n")
	output, _, _ = strings.Cut(output, "```")
	run := func(job, what, tick, owner string, after float64, same bool) recovery {
		return recovery{Fault: &fault{Job: job, What: what}, Tick: tick, Owner: owner, After: after, same: same}
	}
	const killed, paused = "its process was killed", "its process was paused"
	o := outcome{
		OK: true, Workers: 8, Skew: 2, TTL: 3, Faults: 4, Restarts: 8, Elapsed: 34.8,
		Schedlock: []tally{
			{Job: "heartbeat", Ticks: 30, Starts: 30, Most: 1},
			{Job: "report", Ticks: 10, Starts: 6, Most: 1, Skipped: 4, Lost: map[string]int{killed: 1}},
			{Job: "billing", Ticks: 4, Starts: 4, Most: 1, Lost: map[string]int{killed: 1, paused: 1}},
			{Job: "backup", Ticks: 3, Starts: 5, Again: 2, Most: 2},
		},
		Naive: []tally{
			{Job: "heartbeat", Ticks: 30, Starts: 228, Doubled: 30, Most: 8},
			{Job: "report", Ticks: 10, Starts: 6, Most: 1, Skipped: 4},
			{Job: "billing", Ticks: 4, Starts: 7, Doubled: 3, Most: 2},
			{Job: "backup", Ticks: 3, Starts: 5, Doubled: 2, Most: 2},
		},
		Recoveries: []recovery{
			run("billing", "killed", "08:18:45.935", "worker-1.1", 6.7, false), run("billing", "paused", "08:18:53.935", "worker-1.2", 6.7, false),
			run("backup", "killed", "08:18:57.935", "worker-2.1", 2.8, true), run("backup", "paused", "08:19:05.935", "worker-1.2", 3.1, true),
		},
	}
	var printed bytes.Buffer
	o.Write(&printed)
	lines := 0
	for line := range strings.Lines(output) {
		if line == "\n" || line == "…\n" {
			continue
		}
		if lines++; !strings.Contains(printed.String(), line) {
			t.Errorf("the README has the line %q, and the program does not print it", line)
		}
	}
	if lines < 20 {
		t.Errorf("the README shows %d lines:\n%s", lines, output)
	}
}
