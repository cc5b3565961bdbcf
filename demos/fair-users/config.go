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
	front   backend.Choice
	users   int
	greedy  int
	load    time.Duration
	picture string
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
	f := c.Flags("fair-users", "fair-users sends the requests of twenty users and a greedy one to three gateways, once with one\nqueue for all and once with a limit for each user, and compares how long they wait.",
		program.TTL{Of: "gateways", Usual: 20 * time.Second, Least: 5 * time.Second, Most: 5 * time.Minute}, out)
	f.IntVar(&c.users, "users", 20, "users beside the greedy one")
	f.IntVar(&c.greedy, "greedy", 96, "requests that the greedy user sends at the same time")
	f.DurationVar(&c.load, "load", 6*time.Second, "how long the users send requests, in each of the two ways")
	f.StringVar(&c.picture, "picture", "", "write a picture of the waits to this SVG file")
	c.front.Define(f)
	c.OnlyFlag(f, "parts")
	if err := c.Parse(f, args); err != nil {
		return c, err
	}
	return c, c.check()
}

func (c config) check() error {
	switch {
	case c.users < 1 || c.users > 20:
		return fmt.Errorf("-users is %d, want 1 to 20: more of them need more than the total", c.users)
	case c.greedy < 4*total || c.greedy > 1000:
		return fmt.Errorf("-greedy is %d, want %d (4 times the total) to 1000", c.greedy, 4*total)
	case c.load < 3*time.Second:
		return fmt.Errorf("-load is %v, want at least 3s", c.load)
	}
	return nil
}
