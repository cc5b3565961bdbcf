// Package commit makes the transactions of the project and settles their
// outcome. It is the one place that writes requests to etcd.
//
// Guaranteed: Create and Remove tell what became of the key, or that it is not
// known yet; they never guess. A creation that was given up leaves nothing
// behind once Discard has returned nil, however late the network delivers it.
//
// Why that takes care: clientv3 does not repeat a Txn whose answer was lost
// (rightly, it may have been applied), etcd's "no space" can follow an applied
// Txn, and a delayed copy can land after the name it writes to was freed and
// taken anew. So errors are sorted by a whitelist of those that say "not
// applied" (classify); everything else is settled by the fence: each creation
// compares the mod revision of its session's presence key, and settling re-puts
// that key. From then on no copy made before can apply, and one look at the key
// is the truth. A raise voids what all other callers of the session have under way, so
// it is for lost answers only: a call whose caller has gone is not cancelled, and its
// answer settles it.
package commit
