// Pods shows a limit for a whole service: three instances behind a reverse proxy call a slow
// downstream service, and at most 10 of their calls may run at the same time, whatever happens to
// the instances and to etcd. A request above the limit waits for up to 4 s; then it is answered with
// 429.
//
//	go run -C demos ./pods
//	go run -C demos ./pods -limit 5 -timeline out.svg
//	go run -C demos ./pods -endpoints 10.0.0.1:2379,10.0.0.2:2379
//
// Each instance is a process (instance.go), whose handler is behind limithttp.Middleware. So is the
// downstream service. The phases (phases.go, breakage.go): requests above the limit wait, and some
// get 429; the limit is changed while requests arrive; an instance is killed; an instance is paused
// past its TTL; etcd's only member is stopped and started under each outage policy.
//
// The downstream service counts for itself how many calls run at the same time, also those whose
// caller has left. That count, not what the instances or etcd report, is compared with the bound of
// each phase (judge.go).
//
// At its end the program prints a table and, unless the output is a terminal, one line of JSON. Its
// exit status is 0 only if every promise was kept. With -timeline it draws the run.
package main

import (
	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/internal/examples/program"
)

func main() {
	if backend.Child(childEnv, childMain) {
		return
	}
	program.Demo("pods", parseFlags, demonstrate)
}
