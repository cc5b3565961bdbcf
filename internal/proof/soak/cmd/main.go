// Soak has a fleet work on a real etcd, in a process of its own with fsync and compaction, and compares what is in memory
// and in etcd at the first of five rests with what is there at the last one.
//
//	make soak MINUTES=60
//
// Progress goes to stderr, the table to stdout. The exit status is 1 if something has grown by more than 2 %, and 2 if there
// was no whole run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/procs"
	"github.com/etcdkit/etcdkit/internal/proof/procs/server"
	"github.com/etcdkit/etcdkit/internal/proof/soak"
)

// roleEnv makes this program the server; profiled is its value for one with exact profiles.
const (
	roleEnv  = "SOAK_ROLE"
	profiled = "profiled"
)

// profileRate is that of heap profiles: what grows may be small.
const profileRate = 4096

// retain is how long outcomes are kept, and compaction how much history etcd keeps.
const (
	retain     = 10 * time.Second
	compaction = 10 * time.Second
)

func main() {
	if os.Getenv(roleEnv) != "" {
		if os.Getenv(roleEnv) == profiled {
			runtime.MemProfileRate = profileRate
		}
		os.Exit(server.Main(os.Args[1:]))
	}
	length := flag.Duration("for", time.Hour, "how long it takes, rests included; at least five minutes")
	processes := flag.Int("processes", 4, "sessions with a connection of their own, within this process")
	every := flag.Duration("every", 100*time.Millisecond, "between two calls of each kind in each of them")
	dir := flag.String("dir", os.TempDir(), "where etcd writes: a disk, not memory")
	profiles := flag.String("profiles", "", "a folder for heap profiles of etcd and the clients at each rest (default: none)")
	flag.Parse()
	role := "etcd"
	if *profiles != "" {
		role, runtime.MemProfileRate = profiled, profileRate
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	grown, err := run(ctx, *length, *processes, *every, *dir, role, *profiles)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	case grown:
		os.Exit(1)
	}
}

func run(ctx context.Context, length time.Duration, processes int, every time.Duration, parent, role, profiles string) (grown bool, err error) {
	const rest = retain + 2*compaction + 15*time.Second // the session's own keys, and the last outcomes
	const rests = 5
	each := (length - rests*rest) / rests
	if each < 10*time.Second {
		return false, fmt.Errorf("-for %v is too short: at least 5m", length)
	}
	dir, err := os.MkdirTemp(parent, "etcdkit-soak-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	cluster, err := procs.Start(ctx, procs.Options{Binary: self, Dir: dir, Fsync: true, Env: []string{roleEnv + "=" + role}, Args: soak.Flags(compaction)})
	if err != nil {
		return false, err
	}
	defer cluster.Close()
	begun := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "soak: %s of %s: %s\n", time.Since(begun).Round(time.Second), length, fmt.Sprintf(format, args...))
	}
	tally := soak.NewTally()
	say("%d times work for %s and a rest of %s", rests, each.Round(time.Second), rest)
	samples, err := soak.Config{
		Cluster: cluster, Processes: processes, Pace: soak.Pace{Every: every, Retain: retain, Ticks: 10 * every},
		Work: slices.Repeat([]time.Duration{each}, rests), Rest: rest, Profiles: profiles, Say: say,
	}.Run(ctx, tally)
	if err != nil {
		return false, err
	}
	return report(tally, samples, each, (rests-1)*each), nil
}

// report prints the first rest and the last one, and returns whether something has grown.
func report(tally *soak.Tally, samples []soak.Sample, first, then time.Duration) (grown bool) {
	calls, failed, why := tally.Total()
	fmt.Printf("%d calls, %d failed\n", calls, failed)
	if why != nil {
		fmt.Println(why)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "at rest\tafter %s\tand %s more\tratio\t\n", first.Round(time.Second), then.Round(time.Second))
	for _, r := range soak.CompareAll(samples) {
		verdict := map[bool]string{true: "flat", false: ""}[r.Bound]
		if r.Grown {
			verdict, grown = "GROWN", true
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.4f\t%s\n", r.Name, r.First, r.Last, r.Ratio, verdict)
	}
	_ = w.Flush()
	return grown
}
