// Package embedtest runs a real etcd inside a Go test.
//
// A member is ready in tens of milliseconds, a cluster of three in about a
// hundred, and both stop at once even while watches are open. Nothing is
// mocked: the server is etcd's own, over loopback TCP, with its data in a
// temporary directory that is removed with the cluster.
//
//	func TestSomething(t *testing.T) {
//		c := embedtest.Start(t, nil)
//		prefix := c.Prefix(t)
//		_, err := c.Client().Put(t.Context(), prefix+"a", "1")
//		…
//	}
//
// Tests that do not break the server can share one per test binary: use
// [Shared] with a [Cluster.Prefix] each, and [Main] as the body of TestMain.
// Examples and main programs have no testing.TB and use [New].
//
// # Breaking things
//
// A real etcd is of use because real things go wrong. Members can be crashed,
// restarted and cut from each other ([Cluster.Crash], [Cluster.Restart],
// [Cluster.CutPeers], [Cluster.MoveLeader]); leases can end, the key space can
// fill up or be compacted, authentication can be turned on. Every [Client]
// made by [Cluster.NewClient] has connections of its own, so it stands for
// another process, and breaks by itself: its network can be cut, made silent
// or slow, as a whole or towards one member, and single requests can be held,
// repeated, refused, or carried out without the caller ever learning of it
// ([Client.Inject]).
//
// # A real cluster instead
//
// With EMBEDTEST_ENDPOINTS set to a comma separated list of endpoints, no
// server is started: the same tests run against that cluster, and those that
// need to break a server are skipped. [Cluster.Prefix] then also removes the
// keys a test leaves behind, and what [New] returns keeps to keys of its own.
//
// # Which etcd
//
// The server is the one of go.etcd.io/etcd/server/v3 that the module requires: 3.6.16 or
// later. It has to be of the same line as the client: a module that requires the client of
// 3.7 has to require the server of 3.7 too, or this package does not compile:
//
//	go get go.etcd.io/etcd/server/v3@v3.7.3
//
// # What stays real time
//
// etcd measures leases on the wall clock; no fast forward exists. The short
// ticks used here allow leases of one second (etcd's floor is
// ceil(1.5 × election timeout) in whole seconds), and
// [Cluster.ExpireLease] ends one at once. A testing/synctest bubble cannot
// hold a server, because a goroutine blocked on a socket is never idle there.
//
// etcd itself keeps a few things per process, whatever the number of members:
// its Prometheus metrics in the default registry, the logger of the raft
// library, which is that of the member started last, and the size of a segment of
// the write-ahead log, which this package sets to 4 MB for the whole process
// (go.etcd.io/etcd/server/v3/storage/wal.SegmentSizeBytes).
//
// # Disk space, and an etcd that gives up
//
// A process that dies (a panic, os.Exit, a kill) leaves the data of its clusters in
// directories named embedtest-* below os.TempDir. The next process that starts a cluster
// removes them. A file in each is locked while its process lives (flock, LockFileEx), so
// the data of a running process is never removed. Where files cannot be locked, nothing
// is removed. A directory named by [Options].Dir is the caller's.
//
// A member needs 9 MB of disk, and what is written to it. A start without that
// space fails and says how much is missing and where. If etcd cannot go on later,
// on a full disk for example, the reason and the servers' log are written to
// standard error, the member is stopped as by Crash, and the test of the cluster
// fails. A cluster of [New] or [Shared] has no test of its own: there the process
// ends, after the log was written.
package embedtest
