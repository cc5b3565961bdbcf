// Package idempotency does a request once, however often it is sent: the first call does the
// work and records its outcome in etcd; all others with the same key get that outcome.
//
// # Guaranteed
//
// At most one attempt at a key goes on at a time, as far as attempts heed their contexts,
// and none begins after an outcome was recorded, until that has expired (Retain) or was
// deleted: that is decided in one Txn of etcd, and rests on no clock. An attempt is its
// owner's for as long as its process keeps its session, however slow it is. An attempt that
// another has taken over can write nothing any more. What was given to Attempt.With, such
// as the caller's own keys, changes exactly once.
//
// After the function has returned, its outcome is written until etcd has it, and while
// the process and its session live nobody else begins. A request with the same key and
// another payload is refused for as long as the record is kept, also after the function has failed.
//
// # Not guaranteed
//
// That what an attempt does outside etcd happens once: a process can die, or lose its
// session, between the effect and the record. What comes then is a choice: TakeOver (at
// least once; give Attempt.ChildKey to whoever does the effect, so that he does it once) or
// Refuse (at most once; somebody has to Resolve). That an outcome is kept no longer than
// Retain: etcd starts its leases anew at each change of its leader.
//
// # Terms
//
// A request is what has one Key. An attempt is one try to do it; its claim stands in etcd as
// long as its session does. An attempt is lost if its claim has gone and no outcome was
// recorded. An outcome is a result or a failure that is remembered; to replay is to
// give it to a duplicate. The payload's fingerprint tells duplicates from other requests
// that have got the same key.
package idempotency
