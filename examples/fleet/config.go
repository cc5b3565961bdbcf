package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

// step is how long one step of work takes.
const step = 20 * time.Millisecond

// config is what the flags say.
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

	sabotage string // of the workers, by the tests: see sabotage.go
}

func parseFlags(args []string, out io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("fleet", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&c.endpoints, "endpoints", "", "etcd endpoints, separated by commas (default: an embedded etcd)")
	f.IntVar(&c.limit, "limit", 5, "how many executions may work at the same time")
	f.IntVar(&c.executions, "executions", 100, "how many executions have to succeed")
	f.IntVar(&c.workers, "workers", 12, "number of worker processes")
	f.Float64Var(&c.kill, "kill", 0.1, "killed processes (SIGKILL) per execution, 0 to 1")
	f.DurationVar(&c.ttl, "ttl", 2*time.Second, "TTL of the workers' sessions, whole seconds")
	f.Uint64Var(&c.seed, "seed", 1, "decides which execution ends how")
	f.StringVar(&c.timeline, "timeline", "", "write a picture of the run to this SVG file")
	f.StringVar(&c.history, "history", "", "write all events to this file, one JSON object per line")
	f.DurationVar(&c.timeout, "timeout", 5*time.Minute, "give up after this time")
	f.Usage = func() {
		fmt.Fprintln(out, "fleet runs executions under one limit in many processes, breaks them in every way,\nand measures from outside whether the limit held.")
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
		return errors.New("-timeout has to be above 0")
	}
	return nil
}

// margin is a quarter of the TTL: short enough for a short demonstration, and far
// more than the clocks of one host differ by.
func (c config) margin() time.Duration { return c.ttl / 4 }

// pause is how long the paused process is stopped: until its permit has gone to
// somebody else.
func (c config) pause() time.Duration { return c.ttl + time.Second }

// maxHold is longer than any execution that is not stuck takes.
func (c config) maxHold() time.Duration { return c.ttl + 2*time.Second }
