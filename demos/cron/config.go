package main

import (
	"fmt"
	"io"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// config is what the flags say.
type config struct {
	program.Common
	workers int
	skew    time.Duration
	period  time.Duration
}

func parseFlags(args []string, out io.Writer) (config, error) {
	var c config
	f := c.Flags("cron", "cron runs scheduled jobs in a fleet of processes with wrong clocks, kills, pauses and restarts\nthem, and counts from outside how often each fire time started.",
		program.TTL{Of: "workers", Usual: 3 * time.Second, Least: time.Second, Most: time.Minute}, out)
	f.IntVar(&c.workers, "workers", 8, "number of worker processes")
	f.DurationVar(&c.skew, "skew", 2*time.Second, "the workers' clocks are off by -skew to +skew")
	f.DurationVar(&c.period, "period", 8*time.Second, "interval of the slowest jobs, from which all other times follow")
	if err := c.Parse(f, args); err != nil {
		return c, err
	}
	return c, c.check()
}

func (c config) check() error {
	switch {
	case c.workers < 3 || c.workers > 100:
		return fmt.Errorf("-workers is %d, want 3 to 100", c.workers)
	case c.period < time.Second || c.period > time.Hour || c.period%(8*time.Millisecond) != 0:
		return fmt.Errorf("-period is %v, want 1s to 1h, a multiple of 8ms", c.period)
	case c.skew < 0 || 2*c.skew > c.period:
		return fmt.Errorf("-skew is %v, want 0 to half of the period", c.skew)
	case 2*c.skew/time.Duration(c.workers-1) > c.period/8*4/5:
		// While a process is stopped, the next clock must not be so far behind that the
		// process, once resumed, claims a tick before the others reach the one before it.
		return fmt.Errorf("-skew %v of %d workers puts more than the shortest interval between two clocks", c.skew, c.workers)
	case c.period*3/8+c.TTL+1500*time.Millisecond > c.period:
		return fmt.Errorf("-period %v leaves no time to start a lost run again before the next fire time, with -ttl %v", c.period, c.TTL)
	}
	return nil
}

// pause is how long a process is stopped: until its lease has run out.
func (c config) pause() time.Duration { return c.TTL + time.Second }

// shift is by how much the clock of a worker is off.
func (c config) shift(row int) time.Duration {
	return c.skew - 2*c.skew*time.Duration(row)/time.Duration(c.workers-1)
}
