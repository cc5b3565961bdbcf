// Package conformance tests the promises of an idempotency store on an etcd cluster of your
// choice: your own, with its TLS, its passwords and its latency.
//
// The package imports no store. It sees the store under test as a [Store], an interface in plain
// types. Package idempotency/idemtest implements it for etcdkit's own store, and is what most
// tests call:
//
//	func TestOurCluster(t *testing.T) {
//		idemtest.Run(t, clientv3.Config{Endpoints: []string{"10.0.0.1:2379"}}, nil)
//	}
//
// The package starts no server and imports none, so a test with it builds in seconds.
//
// # What it shows
//
// Each of [Promises] is a subtest, whose failure says what was broken. Several instances of the
// store, each with its own client, represent as many processes. An instance is killed by closing
// its client during an attempt. Its lease is revoked, or in one promise expires. Responses of etcd
// are lost and requests are refused inside the client; the servers get only requests that any
// client may send.
//
// # What it does not show
//
// That a store is correct: each promise is tested once, in one order of events. Faults of servers
// need a cluster that a test may damage. All instances are in one process and share its clock, so
// the package cannot show that a store never compares clocks.
//
// # On a shared cluster
//
// Each promise uses its own prefix below [Options.Prefix]. At its end, whatever its result, all
// keys below that prefix are deleted and all leases granted through its clients are revoked; a
// promise whose cleanup fails has failed. All promises together send about a thousand requests to
// etcd, and one result of 10 MiB.
//
// # It can fail
//
// The package's own tests run the promises against a simple store in memory. The complete store
// keeps all promises; for each of its rules, a test removes the rule and expects one particular
// promise to fail.
package conformance
