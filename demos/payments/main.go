// Payments shows what idempotency keys are for: four servers are behind a round-robin proxy, and a
// client sends each payment five times at the same time, with one key. Each order must be charged
// once.
//
//	go run -C demos ./payments
//	go run -C demos ./payments -orders 40
//	go run -C demos ./payments -endpoints 10.0.0.1:2379,10.0.0.2:2379
//
// Each server is a process, and so is the payment provider (provider.go). The provider takes 100 to
// 500 ms, fails sometimes, and charges for each call, unless calls have the same key. The program
// reads the numbers of calls and charges from the provider's book, not from the servers.
//
// The server's handler (pay.go) is behind idemhttp.Middleware. The phases (phases.go, breakage.go):
// duplicates are refused, or wait; the provider fails; a payment takes longer than the session's
// TTL; servers are killed during a payment, with a policy for each kind of provider; the client
// hangs up; the body differs; etcd loses its leader, then its majority. The promise of each phase
// is plain data, with which judge.go compares the results.
//
// The same provider and etcd are used for other common ways to prevent double payments (naive.go,
// marker.go), to show what each misses.
//
// At its end the program prints tables and, unless the output is a terminal, one line of JSON. Its
// exit status is 0 only if every promise was kept.
package main

import (
	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

func main() {
	if backend.Child(childEnv, childMain) {
		return
	}
	program.Demo("payments", parseFlags, demonstrate)
}
