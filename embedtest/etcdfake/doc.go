// Package etcdfake is an etcd in memory, for unit tests of code that uses etcd's client.
//
// The client is etcd's own, with its retries, its watches that resume and its streams of
// renewals; only what it would send over the network goes to a [Server] in the same
// process. No socket and no server of etcd is involved. In a bubble of testing/synctest a
// lease of a minute expires in microseconds, and at its exact moment:
//
//	func TestLease(t *testing.T) {
//		etcdfake.Test(t, func(t *testing.T, etcd *etcdfake.Server) {
//			client := etcd.NewClient() // has a *clientv3.Client, for the code under test
//			lease, err := client.Grant(t.Context(), 60)
//			if err != nil {
//				t.Fatal(err)
//			}
//			…
//			client.Stall() // as if its process was stopped
//			time.Sleep(time.Hour)
//			client.Heal()
//		})
//	}
//
// Outside of a bubble, [New] returns the same server on the wall clock. With the option
// [Endpoints] the same test runs on a real etcd, in real time:
//
//	etcdfake.Test(t, f, etcdfake.Endpoints(embedtest.Start(t, nil).Endpoints()...))
//
// The examples are tests to copy, each of milliseconds: a permit that is lost in the
// middle of the work, a minute without etcd, a duplicate whose first attempt crashed, a
// leader that is asked to step down, and a job in the night of the clock change, which
// skips on a real etcd.
//
// # What is imitated
//
// One member's KV, Lease and Watch: requests, options, revisions and errors. A suite
// asks the fake and real servers of 3.5, 3.6 and 3.7 the same, and compares every
// response: go test -run Conformance runs it, with ETCD_BINARY on a server of yours. Where
// the lines differ, the fake answers as 3.7. Each [Server.NewClient] is another process to the server.
//
// # Faults
//
// A client's network can be cut, refused, stalled or broken once ([Client.Cut],
// [Client.Refuse], [Client.Stall], [Client.Break], [Client.Heal]). Single messages are
// lost, late, answered with an error or sent twice ([Client.Inject]). The server expires
// leases, compacts its history, has no leader, has a clock that jumps, or is restored
// from a backup ([Server.Expire], [Server.Compact], [Server.SetLeader],
// [Server.ShiftClock], [Server.Backup]).
//
// # What is not imitated
//
// Several members that disagree, speed, the size of the store, its quota and alarms, and
// authentication: a Server answers as if there was nothing of it. The services Auth, Cluster,
// Maintenance, Lock and Election of etcd's servers, and fragments of a watch's responses: such
// a call fails with codes.Unimplemented, or with an error that names what is missing. Package
// embedtest has a real etcd for them.
//
// Limits are those of an etcd of default settings: requests that change something have at
// most 1.5 MiB (rpctypes.ErrRequestTooLarge), messages of a client 2 MiB
// (codes.ResourceExhausted), transactions 128 operations, and leases at least 2 seconds.
//
// # Version of etcd's client
//
// A bubble needs a client of 3.6 or 3.7: a channel of etcd's client, which belongs to no
// bubble, is replaced in it by its link name. With another client [New] fails the test in
// a bubble, and works outside of one.
package etcdfake
