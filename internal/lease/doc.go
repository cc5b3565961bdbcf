// Package lease keeps one etcd lease alive and knows until when it may be trusted.
//
// Guaranteed: Deadline is never later than the time at which the last acknowledged renewal was
// sent, plus the granted TTL, minus the margin. etcd counts a lease's time from when it handles
// the renewal, which is after it was sent; so under the margin's assumptions (clock rates,
// leader changes) a lease whose deadline is in the future is alive. Once the deadline has
// passed, the lease is lost for good: a late response does not bring it back.
//
// The monotonic clock, the wall clock and, on Linux, the time since boot count, whichever
// reaches the deadline first.
//
// Not guaranteed: that a machine all of whose clocks stopped notices that before etcd
// responds (see docs/design/0011); and that etcd keeps the lease until the deadline. A lease
// can be revoked, and a leader of etcd that was stopped and continued can expire it early.
//
// clientv3.KeepAlive cannot serve here: it counts from the arrival of the response, hides send
// times, checks once a second and shares one stream among all leases of a client. KeepAliveOnce
// opens a stream per call, and with passwords also authenticates. So each lease has a stream of
// its own with one renewal under way at a time, and further streams while responses are late.
package lease
