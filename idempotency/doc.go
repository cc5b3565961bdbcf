// Package idempotency does a request once, however often it is sent: the first call does the
// work and records its outcome in etcd; all others with the same key return that outcome.
//
// # Guaranteed
//
// At most one attempt at a key runs at a time, if attempts return when their contexts end,
// and none begins after an outcome was recorded, until that has expired (Retain) or was
// deleted: that is decided in one Txn of etcd, and rests on no clock. A process keeps its
// attempt as long as it keeps its session, however slow it is. An attempt that another has
// taken over can write nothing any more. What was given to Attempt.Attach, such as the
// caller's own keys, changes exactly once.
//
// After the function has returned, its outcome is written until etcd has it, and while
// the process and its session live no other attempt begins. A request with the same key and
// another payload is refused as long as the record is kept, also after the function has
// failed.
//
// # Not guaranteed
//
// That what an attempt does outside etcd happens once: a process can die, or lose its
// session, between the effect and the record. What comes then is a choice: TakeOver (at
// least once; send Attempt.ChildKey to the service that is called, which then acts once)
// or Refuse (at most once; an operator has to call Resolve). That an outcome is kept
// no longer than Retain: etcd starts its leases anew when its leader changes.
//
// # Terms
//
// A request is all calls with one Key. An attempt is one try to do it; its claim is in etcd as
// long as its session lives. An attempt is lost if its claim is gone and no outcome was
// recorded. An outcome is a result or a failure that is recorded; to replay is to return it
// to a duplicate. The payload's fingerprint distinguishes duplicates from other requests
// with the same key.
package idempotency
