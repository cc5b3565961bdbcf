// The command bench measures etcdkit beside its peers: see docs/benchmarks/README.md.
//
//	bench [flags] table   the table of `make bench`
//	bench [flags] scale   the sweeps of `make bench-scale`
//	bench show FILE       the tables of a file of JSON lines
//	bench pairs OLD NEW   two builds by their files, measured in turn; more pairs may follow
//	bench plots FILE DIR  the plots of a file of JSON lines
//	bench docs DIR PAGE   the tables and plots of a page, of DIR's table.jsonl and scale.jsonl;
//	                      with one more page, also the tables for users
//	bench [flags] scaling the rows of `make scaling`
//	bench scaling-page FILE PAGE   the tables of docs/scaling.md, of a file of JSON lines
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/servers"
	"github.com/etcdkit/etcdkit/bench/work"
)

func main() {
	servers.Main()
	work.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once, and the kernel its children
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		if errors.Is(err, errIncomplete) {
			os.Exit(3)
		}
		os.Exit(1)
	}
}

// errIncomplete is why the process ends with status 3: everything was written, some rows without figures.
var errIncomplete = errors.New("some cells could not be measured")

// options are the flags of the command.
type options struct {
	rounds int
	each   time.Duration
	dir    string
	out    string
	json   bool
	only   string
	note   string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.rounds, "rounds", 3, "how often each cell is measured")
	f.DurationVar(&o.each, "benchtime", time.Second, "how long a cell is measured in each round")
	f.StringVar(&o.dir, "dir", os.TempDir(), "where the servers write: a disk, not memory")
	f.StringVar(&o.out, "out", "", "the file for the JSON lines; none if empty")
	f.BoolVar(&o.json, "json", false, "print the JSON lines instead of the table")
	f.StringVar(&o.only, "only", "", "a regular expression: only groups with such a name")
	f.StringVar(&o.note, "note", "", "what a reader must know of this run, such as that the machine is busy")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if f.Arg(0) == "show" && f.NArg() == 2 {
		return shown(f.Arg(1), stdout)
	}
	if f.Arg(0) == "pairs" && f.NArg() > 1 && f.NArg()%2 == 1 {
		return paired(f.Args()[1:], stdout)
	}
	if f.Arg(0) == "plots" && f.NArg() == 3 {
		return drawn(f.Arg(1), f.Arg(2), stdout)
	}
	if f.Arg(0) == "docs" && (f.NArg() == 3 || f.NArg() == 4) {
		return documented(f.Arg(1), f.Arg(2), f.Arg(3))
	}
	if f.Arg(0) == "scaling-page" && f.NArg() == 3 {
		return scalingPage(f.Arg(1), f.Arg(2))
	}
	groups := map[string]func(work.Setup) []measure.Group{"table": work.Table, "scale": work.Scale, "scaling": work.ForScaling}[f.Arg(0)]
	if f.NArg() != 1 || groups == nil {
		return fmt.Errorf("what to run is %q; it is table, scale, scaling, show FILE, pairs OLD NEW …, plots FILE DIR, docs DIR PAGE [PAGE], or scaling-page FILE PAGE", f.Args())
	}
	if o.rounds < 1 || o.each <= 0 {
		return errors.New("-rounds and -benchtime must be positive")
	}
	return measureAll(ctx, groups, o, stdout, stderr)
}

func measureAll(ctx context.Context, all func(work.Setup) []measure.Group, o options, stdout, stderr io.Writer) (err error) {
	dir, err := os.MkdirTemp(o.dir, "etcdkit-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	redis, err := servers.StartRedis(ctx, dir)
	if err != nil {
		return err
	}
	defer redis.Close()
	if why := redis.Missing(); why != "" {
		fmt.Fprintf(stderr, "bench: rows with Redis have no figures: %s\n", why)
	}
	fsync, err := servers.Fsync(dir)
	if err != nil {
		return err
	}
	groups, err := selected(all(work.Setup{Dir: dir, For: o.each, Redis: redis}), o.only)
	if err != nil {
		return err
	}
	p := newProgress(stderr, o.rounds, len(groups))
	results, err := measure.Run(ctx, groups, o.rounds, p.step)
	p.end()
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		err = fmt.Errorf("%w:\n%w", errIncomplete, err)
	}
	if failed := report(o, machine(redis.Version, fsync, o), results, judged(groups, results), stdout, stderr); failed != nil {
		return failed
	}
	return err
}

// judged takes all ratios.
func judged(groups []measure.Group, r *measure.Results) (verdicts []measure.Verdict) {
	for _, g := range groups {
		for _, c := range g.Compare {
			verdicts = append(verdicts, r.Judge(c))
		}
	}
	return verdicts
}

func report(o options, m measure.Machine, r *measure.Results, verdicts []measure.Verdict, stdout, stderr io.Writer) error {
	if o.out != "" {
		if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
			return err
		}
		f, err := os.Create(o.out)
		if err != nil {
			return err
		}
		if err := errors.Join(measure.Lines(f, m, r, verdicts), f.Close()); err != nil {
			return err
		}
		fmt.Fprintln(stderr, "JSON lines:", o.out)
	}
	if o.json {
		return measure.Lines(stdout, m, r, verdicts)
	}
	return measure.Table(stdout, m, r, verdicts)
}
