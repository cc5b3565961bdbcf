package main

import (
	"fmt"
	"io"
	"time"

	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// config is the flags.
type config struct {
	program.Common
	front    backend.Choice
	limit    int
	clients  int
	timeline string
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
	f := c.Flags("pods", "pods sends requests to three instances of a service that share one limit, while instances and\netcd fail, and reads from the downstream service how many calls ran at the same time.",
		program.TTL{Of: "instances", Usual: 4 * time.Second, Least: 2 * time.Second, Most: time.Minute}, out)
	f.IntVar(&c.limit, "limit", 10, "calls of the downstream service at the same time")
	f.IntVar(&c.clients, "clients", 40, "clients that send one request after the other")
	f.StringVar(&c.timeline, "timeline", "", "write a timeline of the run to this SVG file")
	c.front.Define(f)
	c.OnlyFlag(f, "phases")
	if err := c.Parse(f, args); err != nil {
		return c, err
	}
	return c, c.check()
}

func (c config) check() error {
	switch {
	case c.limit < 4 || c.limit > 100:
		return fmt.Errorf("-limit is %d, want 4 to 100", c.limit)
	case c.clients < 4*c.limit || c.clients > 1000:
		return fmt.Errorf("-clients is %d, want %d (4 times the limit) to 1000", c.clients, 4*c.limit)
	}
	return nil
}

// lowered is the limit while it is lowered.
const lowered = 3

// burst is the number of requests that are sent at once: half of them can be served in time.
func (c config) burst() int { return 2 * c.limit * int(wait/work) }
