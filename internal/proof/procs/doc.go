// Package procs runs real processes for tests: etcd servers, built from etcd's
// own modules, and workers. A process can be killed (SIGKILL), stopped and
// continued (SIGSTOP, SIGCONT), and started again on the same data; what it
// writes is kept in a file.
//
// What it does not do: cut networks. For that there are embedtest's clusters,
// whose members live in the process of the test.
package procs
