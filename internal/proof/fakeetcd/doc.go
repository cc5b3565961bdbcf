// Package fakeetcd is an etcd in memory, for tests that need its protocol and not its
// servers: without a network, without a goroutine that waits for real time, and so at
// home in a bubble of testing/synctest, where an hour costs nothing.
//
//	synctest.Test(t, func(t *testing.T) {
//		server := fakeetcd.New(nil)
//		defer server.Close()
//		client, err := server.NewClient() // a *clientv3.Client, for whatever takes one
//		...
//		defer client.Close()
//		client.Stall() // as if the process had been stopped
//		time.Sleep(time.Hour)
//		client.Resume()
//	})
//
// Guaranteed: requests of KV, Lease and Watch are answered as a real etcd of one member
// answers them, revisions and errors included; a test asks both the same and compares.
// A client is etcd's own, with its retries and resumed watches; only what it would give
// to gRPC goes to the server instead. Time is time.Now: leases end when their time is
// over, to the nanosecond. Faults happen to single messages (Client.Inject), to a
// client's network (Stall, Cut, Break) and to the server (SetLeader, Jump, Expire,
// Compact, Backup).
//
// Not guaranteed: anything about a cluster whose members disagree, about speed, sizes,
// quotas, authentication or other services. What is not there is refused with an error
// that says so. Surprises of etcd are found by tests with
// package embedtest, whose etcd is real.
package fakeetcd
