// Package processes is the chaos of package chaos on real processes: etcd servers
// of any line and client processes, killed with SIGKILL and stopped with SIGSTOP.
//
// Each client process works on the same workloads as a process of package chaos, and
// writes its history to a file of its own, one event per line and at once, so that
// what it did is not lost with it. All clocks are the one of the host. The parent
// starts, kills and stops, taps etcd, merges the histories and has the checkers
// judge them.
//
// The first client is behind etcd's gRPC proxy, which is killed and stopped as well, and
// the others are not.
//
// With Config.Beside every second client process is of another build of the program, such as that of a former
// release. What both share, settings and Control, only gets new fields.
//
// A run begins with what only real processes show: a leader that is stopped for
// longer than a TTL and continued believes for an instant that it still leads, and
// has leases revoked that live on under its successor. See Early.
package processes
