// Package idempotency records the outcome of each request in etcd and replays it, so that a request
// that is sent again is not executed again. The first call with a key runs the function and records
// its outcome; every other call with that key returns the recorded outcome. If a process dies before
// it has recorded the outcome, or the function fails, OnLost decides: execute again (the default), or
// refuse.
//
// # Guaranteed
//
// An attempt begins only if no other attempt is in progress. No attempt begins after an outcome was
// recorded, until the outcome has expired (Retain) or was deleted. One Txn of etcd decides both; no
// clock takes part.
//
// An attempt's context ends, with a cause, before another attempt begins, under the assumptions that
// package concurrency states for permits. So two attempts at a request do not overlap if their
// functions return when their contexts end.
//
// A process keeps its attempt for as long as it keeps its session and the lease of the record, which it
// renews as well, up to MaxExecution (15 minutes by default). If the function has not returned when the session's margin has passed after that, the
// attempt counts as lost, even if its function still runs. An attempt that another one has taken over
// can write nothing more: no outcome, no recovery point, and no Txn with its Guard.
//
// Operations given to Attempt.Attach, such as changes of the caller's own keys, take effect in the
// Txn that records the outcome, or not at all. They are dropped if the function of Do or Run returns
// an error, also if the failure is recorded.
//
// After the function has returned a value within MaxExecution, its outcome is written until etcd has
// it. While the process and its session live, no other attempt begins meanwhile, unless the conditions
// or operations given to Attach keep the outcome from being recorded.
//
// After an error of the function, the key is released with TakeOver: the next call with the same
// payload begins another attempt. With Refuse nothing runs until an operator calls Resolve, whatever
// ended the attempt, unless the function has returned NothingDone or Permanent of its error: a timeout
// does not say whether the charge was made.
//
// A request with the same key and another payload is refused as long as the record is kept, also
// after the function has failed.
//
// # Not guaranteed
//
// That effects outside etcd happen once: a process can die, or lose its session, between the
// effect and the record. OnLost decides what happens next. With TakeOver the function runs again
// (at least once); send Attempt.ChildKey to the service that it calls, which then acts once. With
// Refuse it does not run until an operator calls Resolve (at most once, for as long as the attempt is
// remembered: RetainUnknown). The Note says which request it is; NotDone waits for the end of the
// attempt's process.
//
// That an outcome is deleted right after Retain: etcd restarts the time of its leases when its
// leader changes.
//
// # Keys for other services
//
// The next attempt at a request makes the calls of the former one again. A service that takes idempotency keys acts
// once if both attempts send it the same key. Use Attempt.ChildKey, with one purpose for each thing that is to be done
// once, such as a charge, and give it to the client of the service: it is the same in each attempt, whatever the call
// says.
//
// The service must keep its keys for longer than clients repeat a request. With TakeOver the next call after a lost
// attempt, an error or the end of the record executes, however late it comes: a service that has forgotten the key by
// then acts twice. No option bounds that. For a service that keeps keys for a day, say, either use Refuse, with which
// nothing executes again within RetainUnknown of a lost attempt and Retain of an outcome; or let the function refuse a
// request that is older, by what the request says of its time.
//
// idemhttp.Transport and the interceptors of idemgrpc's clients are for services that are called in many ways:
// they give each call that has no key one that CallKey makes of what the call says. A call that says something else in
// each attempt, such as the time, then has another key in each, and is executed again. A key that the caller has set
// counts: a request with the header, or a context of WithKey.
//
// # Terms
//
// A request is all calls with one Key. A duplicate is a call for a request that was called
// before. An attempt is one execution of the function for a request. It is in progress, for all processes, while its
// record says so and the presence key of its session exists, at most as long as the leases of both. Commit, Fail,
// Release and Abandon settle an attempt; Do and Run call them.
//
// An outcome is a recorded result or failure; to replay is to return it to a duplicate. An attempt is
// lost if it is not in progress any more, with neither an outcome nor a release; one that has failed under Refuse
// without NothingDone or Permanent counts as lost. It is then unknown what the attempt did: State Unknown and
// UnknownError are about a lost attempt.
//
// A record is what etcd stores about a request: its latest attempt, its outcome and its recovery
// points. The payload's fingerprint distinguishes duplicates from other requests with the same key.
package idempotency
