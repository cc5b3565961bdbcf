package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/cluster"
)

// config has the values of the flags.
type config struct {
	etcd    cluster.Etcd
	seed    uint64
	count   int
	within  time.Duration
	minute  time.Duration
	check   bool
	keep    bool
	blind   bool // without Prometheus
	period  time.Duration
	part    int
	etcdkit string
	root    string // of the repository
}

func main() {
	if s := os.Getenv(workerEnv); s != "" {
		if err := workerMain(s, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "night: a process of the fleet:", err)
			os.Exit(1)
		}
		return
	}
	c, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "night:", err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, c)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "night:", err)
		os.Exit(1)
	}
}

func parse(args []string) (c config, err error) {
	c.period = 20 * time.Second
	f := flag.NewFlagSet("night", flag.ContinueOnError)
	c.etcd.Define(f)
	f.Uint64Var(&c.seed, "seed", uint64(time.Now().UnixNano()), "chooses the faults, their names and times")
	f.IntVar(&c.count, "faults", 5, "number of faults")
	f.DurationVar(&c.within, "within", 10*time.Minute, "the faults start within this time, after a healthy beginning")
	f.DurationVar(&c.minute, "minute", 6*time.Second, "how long a minute of the rules lasts, from 2s to 1m")
	f.BoolVar(&c.check, "check", false, "cause every fault, and verify alerts, first steps and remedies")
	f.BoolVar(&c.keep, "keep", false, "keep the folder with rules, the data of Prometheus and its log")
	f.IntVar(&c.part, "part", 1, "of each kind of names, one out of so many")
	f.StringVar(&c.etcdkit, "etcdkit", "bin/etcdkit", "the command etcdkit")
	f.StringVar(&c.root, "root", ".", "the root of the repository, with docs/observability")
	if err := c.etcd.Parse(f, args); err != nil {
		return c, err
	}
	switch {
	case c.minute < 2*time.Second || c.minute > time.Minute:
		err = fmt.Errorf("-minute is %v, want 2s to 1m", c.minute)
	case c.count < 0 || c.part < 1 || c.within < 0:
		err = errors.New("-faults and -within are below 0, or -part is below 1")
	}
	return c, err
}

// faults returns those that can befall a night.
func (c config) faults(n *night) []fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return f.kind == "" && !n.own })
}

// say prints a line with its time.
func (c config) say(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().UTC().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// run runs a night until ctx ends, or a check.
func run(ctx context.Context, c config) error {
	if _, err := exec.LookPath("prometheus"); err != nil && c.check {
		return fmt.Errorf("nothing was checked: %w", errNoPrometheus)
	}
	n, err := begin(ctx, c)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer n.stop()
	n.greet(c)
	if c.check {
		if err := check(ctx, c, n); err != nil {
			return err
		}
		c.say("every fault has fired its alerts, shown its cause and been ended by its remedy")
		return nil
	}
	answers := filepath.Join(n.dir, "answers")
	fmt.Printf("answers     %s\n\nThe first fault comes after %v of a healthy fleet, the last one before %v. ^C ends the night.\n", answers, healthy*c.minute, healthy*c.minute+c.within)
	sleep(ctx, healthy*c.minute)
	begun := time.Now()
	for _, p := range plan(c.seed, c.faults(n), n.names, c.count, c.within) {
		if sleep(ctx, time.Until(begun.Add(p.after))); ctx.Err() != nil {
			break
		}
		if err := p.cause(ctx, n, p.on); err != nil {
			return fmt.Errorf("a fault could not be caused: %w", err)
		}
		if err := p.record(answers); err != nil {
			return err
		}
	}
	<-ctx.Done()
	if text, err := os.ReadFile(answers); err == nil {
		fmt.Printf("\n%s", text)
	}
	return nil
}

// greet prints the addresses.
func (n *night) greet(c config) {
	prometheus := "none"
	if n.seen != nil {
		prometheus = n.seen.url + "/alerts"
	}
	fmt.Printf("console     %s/\nprometheus  %s (a minute of the rules lasts for %v)\nmetrics     %s\n", n.console, prometheus, c.minute, n.metrics)
	fmt.Printf("services    curl %s/; curl -X POST %s/restart/%s, or /set-clock/%s\n", n.services, n.services, nodes[0], nodes[0])
	fmt.Printf("etcd        export %s\ncommand     %s\n", strings.Join(n.variables(), " "), c.etcdkit)
}

// record adds the fault to the file of the answers.
func (p planned) record(file string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	fmt.Fprintf(f, "%s UTC  %s: %s\n  alerts: %s\n  console: %s\n", time.Now().UTC().Format(time.TimeOnly), p.name, p.on, strings.Join(p.on.texts(p.fires), ", "), p.on.text(p.page))
	if p.look != nil {
		fmt.Fprintf(f, "  command: etcdkit %s\n", strings.Join(p.on.texts(p.look), " "))
	}
	if p.asks != "" {
		fmt.Fprintf(f, "  Prometheus: %s\n", p.on.text(p.asks))
	}
	_, err = fmt.Fprintf(f, "  remedy: %s\n", p.on.text(p.remedy))
	return errors.Join(err, f.Close())
}
