// Package lease keeps one etcd lease alive and knows until when it may be
// trusted.
//
// Guaranteed: Deadline is never later than the time at which the last
// acknowledged renewal was sent, plus the granted TTL, minus the margin. etcd
// counts a lease's time from when it handles the renewal, which is after it was
// sent; so under the margin's assumptions (clock rates, leader changes) a lease
// whose deadline lies ahead is alive. Once the deadline has passed the lease is
// lost for good: a late answer does not bring it back.
//
// The monotonic clock, the wall clock and, on Linux, the time since boot count,
// whichever gets there first.
//
// Not guaranteed: that a machine on which all clocks stood still knows of it
// before etcd answers (see docs/design/0011). That etcd keeps the lease that long. It can be revoked, and a
// stopped and continued leader of etcd can expire it early.
//
// clientv3.KeepAlive cannot serve here: it counts from the answer's arrival,
// hides send times, looks once a second and lets all leases of a client share a
// stream. KeepAliveOnce opens a stream, and with passwords authenticates, per
// call. So each lease has a stream of its own, on which one renewal at a time is
// under way, and more of them while answers are late.
package lease
