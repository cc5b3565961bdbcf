// Package progtest runs an example in its tests as a user does: as a process of its own,
// with flags, whose output, exit status and leavings are looked at.
package progtest
