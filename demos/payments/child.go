package main

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// childEnv makes the program a child. It holds the settings below.
const childEnv = "PAYMENTS_CHILD"

// settings are the settings of a child.
type settings struct {
	program.Place
	Name     string // of a server; empty for the provider
	Provider string // its URL
	TTL      time.Duration
	Margin   time.Duration
	Lifetime time.Duration // of the markers of marker.go
	Sockets  string        // where servers listen as well: see backend.Front
}

// evHungUp is the event of a server that has noticed that the client of a payment has hung up. Its
// text is the order.
const evHungUp = "hung up"

// childMain runs the provider or a server, until its standard input ends.
func childMain(ctx context.Context, s settings) error {
	if s.Name == "" {
		return backend.Serve(ctx, "", newProvider().handler())
	}
	return serverMain(ctx, s)
}
