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
	front  backend.Choice
	curl   string
	orders int
}

// servers is the number of servers behind the proxy; copies is how often each payment is sent.
const (
	servers = 4
	copies  = 5
)

func parseFlags(args []string, out io.Writer) (config, error) {
	var c config
	f := c.Flags("payments", "payments sends each payment five times at once, to four servers, while servers and etcd's\nmembers fail, and reads from the provider's books how often it was charged.",
		program.TTL{Of: "servers", Usual: 5 * time.Second, Least: 2 * time.Second, Most: time.Minute}, out)
	f.IntVar(&c.orders, "orders", 12, "number of orders in each of the larger phases")
	f.StringVar(&c.curl, "curl", "", "the `program` curl, which sends the five requests in a phase of its own")
	c.front.Define(f)
	c.OnlyFlag(f, "phases")
	if err := c.Parse(f, args); err != nil {
		return c, err
	}
	return c, c.check()
}

func (c config) check() error {
	if c.orders < 1 || c.orders > 1000 {
		return fmt.Errorf("-orders is %d, want 1 to 1000", c.orders)
	}
	return nil
}
