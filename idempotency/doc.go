// Package idempotency executes each request once, however often it is sent: the first call with
// a key runs the function and records its outcome in etcd; every other call with that key
// returns the recorded outcome.
//
// # Guaranteed
//
// At most one attempt at a request runs at a time, if functions return when their contexts end.
// No attempt begins after an outcome was recorded, until the outcome has expired (Retain) or was
// deleted. One Txn of etcd decides both; no clock takes part. A process keeps its attempt as
// long as it keeps its session, however slow it is. An attempt that another one has taken over
// can no longer write anything. Operations given to Attempt.Attach, such as changes of the
// caller's own keys, take effect exactly once, together with the outcome.
//
// After the function has returned, its outcome is written until etcd has it. While the process
// and its session live, no other attempt begins. A request with the same key and another payload
// is refused as long as the record is kept, also after the function has failed.
//
// # Not guaranteed
//
// That effects outside etcd happen once: a process can die, or lose its session, between the
// effect and the record. OnLost decides what happens next. With TakeOver the function runs again
// (at least once); send Attempt.ChildKey to the service that it calls, which then acts once. With
// Refuse it does not run until an operator calls Resolve (at most once).
//
// That an outcome is deleted right after Retain: etcd restarts the time of its leases when its
// leader changes.
//
// # Terms
//
// A request is all calls with one Key. A duplicate is a call for a request that was called
// before. An attempt is one execution of the function for a request; its claim is a key in etcd
// that exists until the attempt is settled, by Commit, Fail, Release or Abandon, or until the lease
// of its session ends. An attempt is lost if its claim has ended without an outcome. An outcome is a
// recorded result or failure; to replay is to return it to a duplicate. A record is what etcd stores
// about a request: its latest attempt, its outcome and its recovery points. The payload's fingerprint
// distinguishes duplicates from other requests with the same key.
package idempotency
