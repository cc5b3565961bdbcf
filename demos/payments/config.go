package main

import (
	"fmt"
	"io"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// config is the flags.
type config struct {
	program.Common
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
