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
	orders    int
	ttl       time.Duration
	timeout   time.Duration
	metrics   string
	only      *regexp.Regexp
}

// servers is the number of servers behind the proxy; copies is how often each payment is sent.
const (
	servers = 4
	copies  = 5
)

func parseFlags(args []string, out io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("payments", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&c.endpoints, "endpoints", "", "etcd endpoints, separated by commas (default: an embedded etcd of three members)")
	f.IntVar(&c.orders, "orders", 12, "number of orders in each of the larger phases")
	f.DurationVar(&c.ttl, "ttl", 5*time.Second, "TTL of the servers' sessions, whole seconds")
	f.DurationVar(&c.timeout, "timeout", 5*time.Minute, "give up after this time")
	metrics.Flag(f, &c.metrics)
	only := f.String("only", "", "run only the phases whose names match this regular expression")
	f.Usage = func() {
		fmt.Fprintln(out, "payments sends each payment five times at once, to four servers, while servers and etcd's\nmembers fail, and reads from the provider's books how often it was charged.")
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
	case c.orders < 1 || c.orders > 1000:
		return fmt.Errorf("-orders is %d, want 1 to 1000", c.orders)
	case c.ttl < 2*time.Second || c.ttl > time.Minute || c.ttl%time.Second != 0:
		return fmt.Errorf("-ttl is %v, want whole seconds from 2s to 1m", c.ttl)
	case c.timeout <= 0:
		return fmt.Errorf("-timeout has to be above 0")
	}
	return nil
}

// margin is a quarter of the TTL: far more than clock rates on one host differ.
func (c config) margin() time.Duration { return c.ttl / 4 }
