// Package embedtest runs a real etcd inside a Go test.
//
// The server is etcd's own. It runs in the process of the test, serves on loopback TCP
// and writes to a temporary directory, which is removed with the cluster. One member is
// ready in tens of milliseconds, three members in about a hundred. A cluster stops at
// once, even while watches are open. Nothing is mocked, and time is real: a lease expires
// by the wall clock.
//
//	func TestSomething(t *testing.T) {
//		c := embedtest.Start(t, nil)
//		prefix := c.Prefix(t)
//		_, err := c.Client().Put(t.Context(), prefix+"a", "1")
//		if err != nil {
//			t.Fatal(err)
//		}
//		…
//	}
//
// Tests that do not break the server can share one member per test binary: use [Shared],
// a [Cluster.Prefix] for each test, and [Main] as the body of TestMain. Examples and main
// programs have no testing.TB; they use [New].
//
// # Faults
//
// Faults of a cluster affect all clients. Members can be stopped, crashed, restarted and
// cut off from each other ([Cluster.Crash], [Cluster.Restart], [Cluster.CutPeers],
// [Cluster.MoveLeader]). Leases can expire early, the backend can be out of space, the
// history can be compacted, and authentication can be enabled ([Cluster.ExpireLease],
// [Cluster.SetNoSpace], [Cluster.Compact], [Cluster.EnableAuth]).
//
// Faults of a [Client] affect this client only. Each client of [Cluster.NewClient] has
// its own connections: for etcd it is another process. Its network can be cut, made
// silent or slowed down, for all members or for one ([Client.Cut], [Client.BlackHole],
// [Client.Delay]). Its requests can be held, refused or duplicated, and its responses
// held or dropped ([Client.Inject]).
//
// # A real cluster instead
//
// If the environment variable EMBEDTEST_ENDPOINTS has a comma-separated list of
// endpoints, no server is started. The same tests then run against that cluster, and the
// tests that need to break a server are skipped. [Cluster.Close] deletes the keys that a
// test leaves below its [Cluster.Prefix]. A cluster of [New] has a key space of its own.
//
// Options that are set, other than Members and Logger, need a server of this package: [Start]
// skips the test, and [New] returns [ErrExternal]. So do more Members than there are endpoints.
//
// # Version of etcd
//
// The server is go.etcd.io/etcd/server/v3 in the version that the module requires, which
// is 3.6.16 or later. Client and server must have the same minor version: a module that
// requires the client of 3.7 must also require the server of 3.7, or this package does
// not compile:
//
//	go get go.etcd.io/etcd/server/v3@v3.7.3
//
// # Real time
//
// etcd measures leases by the wall clock and cannot fast-forward. The default election
// timeouts allow leases of one second (etcd's minimum TTL is ceil(1.5 × election timeout),
// in whole seconds). [Cluster.ExpireLease] expires a lease at once. A testing/synctest
// bubble cannot contain a server, because a goroutine that waits for a socket is not
// durably blocked; package etcdfake has an etcd for bubbles.
//
// # State of the process
//
// etcd keeps some state per process, for all its members: the Prometheus metrics in the
// default registry, the logger of the raft library (that of the member started last), and
// the size of a segment of the write-ahead log
// (go.etcd.io/etcd/server/v3/storage/wal.SegmentSizeBytes). This package sets that size
// to 4 MB.
//
// # Disk space
//
// A member needs 9 MB of disk space, and space for what is written to it. Without the
// 9 MB a start fails, and its error has the missing size and the directory.
//
// A process that dies (by a panic, os.Exit or a kill) leaves the data of its clusters in
// directories named embedtest-* below os.TempDir. The next process that starts a cluster
// removes them. Each directory has a file that its process locks (flock, LockFileEx), so
// the data of a running process is never removed. Where files cannot be locked, nothing
// is removed. A directory named by [Options].Dir is never removed.
//
// # Fatal errors of etcd
//
// If etcd cannot continue, for example because the disk is full, it logs the reason at
// level Fatal or Panic. embedtest then writes the reason and the servers' log to standard
// error, stops the member as [Cluster.Crash] does, and fails the test of the cluster. A
// cluster of [New] or [Shared] has no test: the process exits after the log is written.
package embedtest
