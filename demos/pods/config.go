package main

import (
	"flag"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/metrics"
)

// config is the flags.
type config struct {
	endpoints string
	limit     int
	clients   int
	ttl       time.Duration
	timeout   time.Duration
	metrics   string
	timeline  string
	only      *regexp.Regexp
}

const (
	instances = 3
	// work is how long a call of the downstream service takes.
	work = 400 * time.Millisecond
	// wait is how long a request waits for a permit.
	wait = 4 * time.Second
	// patience is how long etcd is silent before an outage begins: Options.Patience.
	patience = 2 * time.Second
)

func parseFlags(args []string, out io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("pods", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&c.endpoints, "endpoints", "", "etcd endpoints, separated by commas (default: an embedded etcd of one member)")
	f.IntVar(&c.limit, "limit", 10, "calls of the downstream service at the same time")
	f.IntVar(&c.clients, "clients", 40, "clients that send one request after the other")
	f.DurationVar(&c.ttl, "ttl", 4*time.Second, "TTL of the instances' sessions, whole seconds")
	f.DurationVar(&c.timeout, "timeout", 5*time.Minute, "give up after this time")
	metrics.Flag(f, &c.metrics)
	f.StringVar(&c.timeline, "timeline", "", "write a timeline of the run to this SVG file")
	only := f.String("only", "", "run only the phases whose names match this regular expression")
	f.Usage = func() {
		fmt.Fprintln(out, "pods sends requests to three instances of a service that share one limit, while instances and\netcd fail, and reads from the downstream service how many calls ran at the same time.")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return c, err
	}
	var err error
	if c.only, err = regexp.Compile(*only); err != nil {
		return c, fmt.Errorf("-only: %w", err)
	}
	return c, c.check(f.Args())
}

func (c config) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case c.limit < 4 || c.limit > 100:
		return fmt.Errorf("-limit is %d, want 4 to 100", c.limit)
	case c.clients < 4*c.limit || c.clients > 1000:
		return fmt.Errorf("-clients is %d, want %d (4 times the limit) to 1000", c.clients, 4*c.limit)
	case c.ttl < 2*time.Second || c.ttl > time.Minute || c.ttl%time.Second != 0:
		return fmt.Errorf("-ttl is %v, want whole seconds from 2s to 1m", c.ttl)
	case c.timeout <= 0:
		return fmt.Errorf("-timeout has to be above 0")
	}
	return nil
}

// margin is a quarter of the TTL: far more than clock rates on one host differ, and longer than a
// call of the downstream service.
func (c config) margin() time.Duration { return c.ttl / 4 }

// lowered is the limit while it is lowered.
const lowered = 3

// burst is the number of requests that are sent at once: half of them can be served in time.
func (c config) burst() int { return 2 * c.limit * int(wait/work) }
