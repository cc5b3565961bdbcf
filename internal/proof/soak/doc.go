// Package soak shows that a process and its etcd do not grow under a load that lasts: a mixed load of all primitives, and
// what is in memory and in etcd whenever it rests.
//
// TestDay runs a day of it in virtual time, on package etcdfake, with faults. The command in cmd (make soak) runs an hour
// of it in real time, on an etcd in a process of its own. Both compare an early rest with the last one.
package soak
