// Chaos runs semaphores, limiters by key, rates, mutexes, elections, jobs and requests while etcd and the network fail, and judges what
// happened.
//
//	make chaos SEED=7 MINUTES=3
//
// Progress goes to stderr, and one line of JSON to stdout. What is not green is
// written to a folder, with how to judge it again. The exit status is 0 for green, 1
// for red, 3 for an inconclusive run, and 2 if there was none.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/chaos"
	"github.com/etcdkit/etcdkit/internal/proof/check"
)

func main() {
	seed := flag.Uint64("seed", rand.Uint64N(1_000_000), "decides what happens")
	length := flag.Duration("for", time.Minute, "how long harm is done")
	only := flag.String("nemeses", "", "names, separated by commas (default: all)")
	workloads := flag.String("workloads", "", "names, separated by commas (default: all)")
	out := flag.String("out", os.TempDir(), "where to write what is not green")
	keep := flag.Bool("keep", false, "write what is green, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	begun := time.Now()
	c := chaos.Config{Seed: chaos.Seed(*seed), Duration: *length, Progress: func(format string, a ...any) {
		fmt.Fprintf(os.Stderr, "%7.1fs "+format+"\n", append([]any{time.Since(begun).Seconds()}, a...)...)
	}}
	if *only != "" {
		names := strings.Split(*only, ",")
		c.Nemeses = slices.DeleteFunc(chaos.Nemeses(), func(n chaos.Nemesis) bool { return !slices.Contains(names, n.Name) })
	}
	if *workloads != "" {
		names := strings.Split(*workloads, ",")
		c.Workloads = slices.DeleteFunc(chaos.Workloads(), func(s chaos.Workload) bool { return !slices.Contains(names, s.Name()) })
	}
	fmt.Fprintf(os.Stderr, "chaos: seed %d for %v\n", *seed, *length)
	verdict, err := run(ctx, c, *out, *keep)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	case verdict == check.Red:
		os.Exit(1)
	case verdict != check.Green:
		os.Exit(3)
	}
}

// summary is the line of JSON.
type summary struct {
	Seed     uint64           `json:"seed"`
	Seconds  float64          `json:"seconds"`
	Verdict  check.Verdict    `json:"verdict"`
	Findings []finding        `json:"findings"`
	Missing  []string         `json:"missing,omitempty"`
	Effects  map[string]int64 `json:"effects"`
	Stats    map[string]int   `json:"stats"`
	Replay   string           `json:"replay,omitempty"`
}

type finding struct {
	Level   string `json:"level"`
	Checker string `json:"checker"`
	Rule    string `json:"rule"`
	Text    string `json:"text"`
}

func run(ctx context.Context, c chaos.Config, out string, keep bool) (check.Verdict, error) {
	res, err := chaos.Run(ctx, c)
	if err != nil {
		return "", err
	}
	report, checkers, err := res.Judge()
	if err != nil {
		return "", err
	}
	s := summary{Seed: uint64(c.Seed), Seconds: c.Duration.Seconds(), Verdict: report.Verdict, Findings: []finding{},
		Missing: report.Missing, Effects: report.Effects, Stats: res.Stats}
	for _, f := range report.Findings {
		if f.Level != check.Excused {
			s.Findings = append(s.Findings, finding{f.Level.String(), f.Checker, f.Rule, f.Text})
		}
	}
	fmt.Fprint(os.Stderr, report)
	if report.Verdict != check.Green || keep {
		if s.Replay, err = report.Save(out, res.History, checkers...); err != nil {
			return "", err
		}
		fmt.Fprintln(os.Stderr, "to judge it again:", s.Replay)
	}
	return report.Verdict, json.NewEncoder(os.Stdout).Encode(s)
}
