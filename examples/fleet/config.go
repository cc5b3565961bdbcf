package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// step is the duration of one step of work.
const step = 20 * time.Millisecond

// config has the values of the flags.
type config struct {
	program.Common
	limit      int
	executions int
	workers    int
	kill       float64
	seed       uint64
	timeline   string
	history    string

	sabotage string // set by tests: see sabotage.go
}

func parseFlags(args []string, out io.Writer) (config, error) {
	var c config
	f := c.Flags("fleet", "fleet runs executions under one limit in many processes, makes executions and processes\nfail, and measures from outside whether the limit held.",
		program.TTL{Of: "workers", Usual: 2 * time.Second, Least: time.Second, Most: time.Minute}, out)
	f.IntVar(&c.limit, "limit", 5, "maximum number of executions at the same time")
	f.IntVar(&c.executions, "executions", 100, "number of executions")
	f.IntVar(&c.workers, "workers", 12, "number of worker processes")
	f.Float64Var(&c.kill, "kill", 0.1, "processes killed with SIGKILL, per execution, 0 to 1")
	f.Uint64Var(&c.seed, "seed", 1, "seed of the plan: which executions fail, and how")
	f.StringVar(&c.timeline, "timeline", "", "write a timeline of the run to this SVG file")
	f.StringVar(&c.history, "history", "", "write all events to this file, one JSON object per line")
	if err := c.Parse(f, args); err != nil {
		return c, err
	}
	return c, c.check()
}

func (c config) check() error {
	switch {
	case c.limit < 1:
		return fmt.Errorf("-limit is %d, want at least 1", c.limit)
	case c.executions < 1:
		return fmt.Errorf("-executions is %d, want at least 1", c.executions)
	case c.workers < 1 || c.workers > 1000:
		return fmt.Errorf("-workers is %d, want 1 to 1000", c.workers)
	case !(c.kill >= 0 && c.kill <= 1):
		return fmt.Errorf("-kill is %v, want 0 to 1", c.kill)
	case c.timeline != "" && c.timeline == c.history:
		return errors.New("-timeline and -history name the same file")
	}
	return nil
}

// pause is how long the paused process is stopped: until its permit has expired and another
// process holds one.
func (c config) pause() time.Duration { return c.TTL + time.Second }

// maxHold bounds a permit. Only executions that are stuck take longer.
func (c config) maxHold() time.Duration { return c.TTL + 2*time.Second }
