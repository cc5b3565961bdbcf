// Package commit makes the transactions of the project and settles their outcome. It is the
// one place that writes requests to etcd.
//
// Guaranteed: Create and Remove report the outcome for the key, or that it is not known yet;
// they never guess. An abandoned creation leaves nothing behind once Discard has returned nil,
// however late the network delivers it.
//
// Why this is not simple: clientv3 does not repeat a Txn whose response was lost (rightly, it
// may have been applied); etcd's "no space" can follow an applied Txn; and a delayed copy can
// arrive after its key was removed and created again. So a whitelist sorts out the errors that
// say "not applied" (classify), and the fence settles all others: each creation compares the
// mod revision of its session's presence key, and settling puts that key again. From then on
// no earlier copy can be applied, and one read of the key shows the truth.
//
// A raise voids what all other callers of the session have under way, so it is only for lost
// responses: a call is not cancelled when its caller's ctx ends, and its response settles it.
package commit
