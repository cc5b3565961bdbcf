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
	users     int
	greedy    int
	load      time.Duration
	ttl       time.Duration
	timeout   time.Duration
	metrics   string
	picture   string
	only      *regexp.Regexp
}

const (
	gateways = 3
	// total is how many requests the model serves at the same time, perUser how many of one user.
	total   = 12
	perUser = 4
	// work is how long the model takes for a request.
	work = 250 * time.Millisecond
	// maxHold bounds the permits of handlers that may not return.
	maxHold = 2 * time.Second
)

func parseFlags(args []string, out io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("fair-users", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&c.endpoints, "endpoints", "", "etcd endpoints, separated by commas (default: an embedded etcd)")
	f.IntVar(&c.users, "users", 20, "users beside the greedy one")
	f.IntVar(&c.greedy, "greedy", 96, "requests that the greedy user sends at the same time")
	f.DurationVar(&c.load, "load", 6*time.Second, "how long the users send requests, in each of the two ways")
	f.DurationVar(&c.ttl, "ttl", 20*time.Second, "TTL of the gateways' sessions, whole seconds")
	f.DurationVar(&c.timeout, "timeout", 5*time.Minute, "give up after this time")
	metrics.Flag(f, &c.metrics)
	f.StringVar(&c.picture, "picture", "", "write a picture of the waits to this SVG file")
	only := f.String("only", "", "run only the parts whose names match this regular expression")
	f.Usage = func() {
		fmt.Fprintln(out, "fair-users sends the requests of twenty users and a greedy one to three gateways, once with one\nqueue for all and once with a limit for each user, and compares how long they wait.")
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
	case c.users < 1 || c.users > 20:
		return fmt.Errorf("-users is %d, want 1 to 20: more of them need more than the total", c.users)
	case c.greedy < 4*total || c.greedy > 1000:
		return fmt.Errorf("-greedy is %d, want %d (4 times the total) to 1000", c.greedy, 4*total)
	case c.load < 3*time.Second:
		return fmt.Errorf("-load is %v, want at least 3s", c.load)
	case c.ttl < 5*time.Second || c.ttl > 5*time.Minute || c.ttl%time.Second != 0:
		return fmt.Errorf("-ttl is %v, want whole seconds from 5s to 5m", c.ttl)
	case c.timeout <= 0:
		return fmt.Errorf("-timeout has to be above 0")
	}
	return nil
}
