// Fair-users shows limits per user with a total: twenty users and a greedy one share a model that
// serves 12 requests at the same time. The greedy user sends 96 requests at a time.
//
//	go run -C demos ./fair-users
//	go run -C demos ./fair-users -endpoints 10.0.0.1:2379,10.0.0.2:2379
//
// Three gateways are behind a reverse proxy. Each gateway is a process (gateway.go), and so is the
// model. First all requests wait in one queue: a semaphore of 12. Then the same requests are limited
// by a concurrency.KeyedLimiter: 4 for each user, and a total of 12. The program compares how long
// the requests of each user waited.
//
// Then two things that a limit has to survive (flows.go): handlers that never return, whose permits
// end after MaxHold; and flows that begin in one process and end in another, by ID, ReleaseID and
// TakeOver.
//
// The model counts for itself how many requests of each user, and of all, run at the same time.
//
// At its end the program prints tables and, unless the output is a terminal, one line of JSON. Its
// exit status is 0 only if every promise was kept. With -picture it draws the waits.
package main

import (
	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

func main() {
	if backend.Child(childEnv, childMain) {
		return
	}
	program.Demo("fair-users", parseFlags, demonstrate)
}
