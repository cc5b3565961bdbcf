// Processes runs the chaos of real processes on real servers, one line of etcd after
// the other, and judges what happened.
//
//	make chaos-processes SEED=7 MINUTES=2
//
// Progress goes to stderr, verdicts to stdout. What is not green is written to a
// folder, with how to judge it again. The exit status is 0 if all lines are green;
// else 1 if one is red, 2 if there was no run on one, and 3 if one is inconclusive.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/chaos"
	"github.com/etcdkit/etcdkit/internal/proof/chaos/processes"
	"github.com/etcdkit/etcdkit/internal/proof/check"
)

func main() {
	if os.Getenv(processes.WorkerEnv) != "" {
		os.Exit(processes.Worker())
	}
	lines := flag.String("line", "3.5,3.6,3.7", "the lines of etcd, one after the other, separated by commas")
	seed := flag.Uint64("seed", rand.Uint64N(1_000_000), "decides what is done and what strikes")
	length := flag.Duration("for", time.Minute, "how long all nemeses strike, on each line, after a stopped leader was seen to end leases early")
	beside := flag.String("beside", "", "another build of this program, such as a former release's: every second client process is one of it (default: none)")
	only := flag.String("nemeses", "", "names, separated by commas (default: all: "+strings.Join(processes.Nemeses(), ",")+")")
	out := flag.String("out", os.TempDir(), "where to write what is not green")
	keep := flag.Bool("keep", false, "write what is green, too")
	flag.Parse()
	c := processes.Config{Seed: chaos.Seed(*seed), Duration: *length, Beside: *beside}
	for name := range strings.SplitSeq(*only, ",") {
		switch {
		case slices.Contains(processes.Nemeses(), name):
			c.Nemeses = append(c.Nemeses, name)
		case *only != "":
			fmt.Fprintf(os.Stderr, "chaos-processes: no nemesis is called %q; there are %s\n", name, strings.Join(processes.Nemeses(), ", "))
			os.Exit(2)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	seen := map[int]bool{} // exit statuses of the lines
	var summary []string
	for line := range strings.SplitSeq(*lines, ",") {
		begun := time.Now()
		res, err := run(ctx, line, c, *out, *keep)
		switch {
		case err != nil:
			summary = append(summary, fmt.Sprintf("%s  NO RUN: %v", line, err))
			seen[2] = true
		default:
			summary = append(summary, fmt.Sprintf("%s  %s: etcd %s, seed %d, %.0f s, %d leases ended early by stopped leaders%s",
				line, strings.ToUpper(string(res.Report.Verdict)), res.Version, *seed, time.Since(begun).Seconds(), len(res.Early), mixed(res, *beside)))
			seen[status(res.Report.Verdict)] = true
		}
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Println(strings.Join(summary, "\n"))
	for _, status := range []int{1, 2, 3} {
		if seen[status] {
			os.Exit(status)
		}
	}
}

// mixed says how many client processes were of the other build.
func mixed(res *processes.Result, beside string) string {
	if beside == "" {
		return ""
	}
	return fmt.Sprintf(", %d client processes of %s", res.Beside, filepath.Base(beside))
}

func status(v check.Verdict) int {
	switch v {
	case check.Green:
		return 0
	case check.Red:
		return 1
	}
	return 3
}

func run(ctx context.Context, line string, c processes.Config, out string, keep bool) (*processes.Result, error) {
	folder := "etcd" + strings.ReplaceAll(line, ".", "") // of compat
	binary := filepath.Join("bin", folder)
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join("compat", folder), "-o", filepath.Join("..", "..", binary), ".")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, text)
	}
	dir, err := os.MkdirTemp("", folder+"-")
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	c.Binary, c.Dir, c.Progress = binary, dir, func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%7.1fs %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
	}
	res, err := processes.Run(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%w; what there is is in %s", err, dir)
	}
	fmt.Println(res)
	green := res.Report.Verdict == check.Green
	if !green || keep {
		checkers, err := check.Suite(res.History)
		if err != nil {
			return nil, err
		}
		replay, err := res.Report.Save(out, res.History, checkers...)
		if err != nil {
			return nil, err
		}
		fmt.Println("to judge it again:", replay)
	}
	if green {
		return res, os.RemoveAll(dir)
	}
	fmt.Println("logs of servers and clients:", dir)
	return res, nil
}
