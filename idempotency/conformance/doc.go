// Package conformance holds an idempotency store to its promises, on an etcd that you
// choose: your own cluster, with its TLS, its passwords, its latency.
//
// It knows no store. What it tests is seen through [Store], in plain types; the package
// idempotency/idemtest has that for etcdkit's own, and is what most will call:
//
//	func TestOurCluster(t *testing.T) {
//		idemtest.Run(t, clientv3.Config{Endpoints: []string{"10.0.0.1:2379"}}, nil)
//	}
//
// It starts no server and imports none, so a test with it builds in seconds.
//
// # What it shows
//
// Each of [Promises] is a subtest, and says what it has seen broken. Several instances of
// the store, each with a client of its own, stand for as many processes. They are killed
// (the client is closed in the middle of an attempt), and their leases end, by hand or in
// one promise by etcd itself; answers of etcd's are lost on the way, and requests refused,
// in the client alone: nothing is asked of the servers that a client may not ask.
//
// # What it does not show
//
// That a store is right: it tries each thing once, and looks. What harm to servers would
// bring out is for a cluster that may be harmed. Clocks of the instances cannot be set
// apart in one process, so that no two are compared is not tried here.
//
// # On a shared cluster
//
// Every promise keeps to a prefix of its own below [Options.Prefix]. In the end, whatever
// has happened, all keys below it are deleted and all leases that were granted through its
// clients are revoked; a promise that cannot do so has failed. The load is small: about
// a thousand requests to etcd, and one result of 10 MiB.
//
// # It can fail
//
// The package's own tests hold a store in memory to the promises, written the slow way:
// whole, it keeps them all; with any one rule taken out, the promise that is meant notices.
package conformance
