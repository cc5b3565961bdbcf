package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/metrics"
)

// step is the duration of one step of work.
const step = 20 * time.Millisecond

// config has the values of the flags.
type config struct {
	endpoints  string
	limit      int
	executions int
	workers    int
	kill       float64
	ttl        time.Duration
	seed       uint64
	timeline   string
	history    string
	timeout    time.Duration
	metrics    string

	sabotage string // set by tests: see sabotage.go
}

func parseFlags(args []string, out io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("fleet", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&c.endpoints, "endpoints", "", "etcd endpoints, separated by commas (default: an embedded etcd)")
	f.IntVar(&c.limit, "limit", 5, "maximum number of executions at the same time")
	f.IntVar(&c.executions, "executions", 100, "number of executions")
	f.IntVar(&c.workers, "workers", 12, "number of worker processes")
	f.Float64Var(&c.kill, "kill", 0.1, "processes killed with SIGKILL, per execution, 0 to 1")
	f.DurationVar(&c.ttl, "ttl", 2*time.Second, "TTL of the workers' sessions, whole seconds")
	f.Uint64Var(&c.seed, "seed", 1, "seed of the plan: which executions fail, and how")
	f.StringVar(&c.timeline, "timeline", "", "write a timeline of the run to this SVG file")
	f.StringVar(&c.history, "history", "", "write all events to this file, one JSON object per line")
	f.DurationVar(&c.timeout, "timeout", 5*time.Minute, "fail if the run takes longer")
	metrics.Flag(f, &c.metrics)
	f.Usage = func() {
		fmt.Fprintln(out, "fleet runs executions under one limit in many processes, makes executions and processes\nfail, and measures from outside whether the limit held.")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return c, err
	}
	return c, c.check(f.Args())
}

func (c config) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case c.limit < 1:
		return fmt.Errorf("-limit is %d, want at least 1", c.limit)
	case c.executions < 1:
		return fmt.Errorf("-executions is %d, want at least 1", c.executions)
	case c.workers < 1 || c.workers > 1000:
		return fmt.Errorf("-workers is %d, want 1 to 1000", c.workers)
	case !(c.kill >= 0 && c.kill <= 1):
		return fmt.Errorf("-kill is %v, want 0 to 1", c.kill)
	case c.ttl < time.Second || c.ttl > time.Minute || c.ttl%time.Second != 0:
		return fmt.Errorf("-ttl is %v, want whole seconds from 1s to 1m", c.ttl)
	case c.timeline != "" && c.timeline == c.history:
		return errors.New("-timeline and -history name the same file")
	case c.timeout <= 0:
		return errors.New("-timeout is not positive")
	}
	return nil
}

// margin is the sessions' margin: a quarter of the TTL, and far more than the difference
// between clocks on one host.
func (c config) margin() time.Duration { return c.ttl / 4 }

// pause is how long the paused process is stopped: until its permit has expired and another
// process holds one.
func (c config) pause() time.Duration { return c.ttl + time.Second }

// maxHold bounds a permit. Only executions that are stuck take longer.
func (c config) maxHold() time.Duration { return c.ttl + 2*time.Second }
