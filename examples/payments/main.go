// Payments is the experiment with which idempotency keys are explained: four servers behind
// a round-robin proxy, orders, and for each order five payment requests at once, with the
// same key. Each order shall be charged once.
//
//	go run ./examples/payments
//	go run ./examples/payments -orders 40
//	go run ./examples/payments -endpoints 10.0.0.1:2379,10.0.0.2:2379
//
// The servers are processes of their own, and so is the payment provider (provider.go): it
// takes 100 to 500 ms, fails sometimes, and charges as often as it is asked, unless it is
// given a key. How often it was called and how often it has charged is read from its
// books, not from the servers.
//
// The server's handler (pay.go) stands behind idemhttp.Middleware. Its phases (phases.go,
// breakage.go): duplicates are refused, or wait; the provider fails; a payment takes longer than
// the session's TTL; servers are killed in mid-payment, with a policy for each kind of provider;
// the client hangs up; the body differs; etcd loses its leader, then its majority. What is
// promised in each is plain data, and a judge compares (judge.go).
//
// Beside it, on the same etcd, with the same provider, other ways that are in use
// (naive.go, marker.go), with what each gets wrong.
//
// At the end it prints tables and, unless the output is a terminal, one line of JSON. It
// ends with status 0 only if every promise was kept.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if isChild() {
		childMain()
		return
	}
	c, err := parseFlags(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	o, err := demonstrate(ctx, c, os.Stderr)
	interrupted := ctx.Err() != nil
	cancel()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, "payments: interrupted; all processes have ended")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(1)
	}
	o.write(os.Stdout)
	if !o.OK {
		os.Exit(1)
	}
}
