// Package limitgrpc limits how many calls of one key (a tenant, a user, a method) the handlers of a
// whole fleet serve at the same time, unary calls and streams. It runs each call under a permit of a
// concurrency.Limiter: a concurrency.KeyedLimiter, or one semaphore (concurrency.Single). The
// interceptors of a client limit outgoing calls likewise. A concurrency.RateLimiter limits how often
// calls begin, beside such a limiter or alone (Options.Rate).
//
// # Guaranteed
//
// The guarantees of package concurrency: a handler runs under a permit of its own, so at most as
// many hold permits at a time as the limit allows, in all processes together; a handler that does not return when its permit
// is lost can run beside the next one. Calls are admitted in the order of
// their queue: that of their key, and then that of the total. If a limit is lowered, handlers that
// run already continue. Options.Outage says what an outage of etcd does to that.
//
// A permit is held until the handler has returned, or has panicked: a client that cancels does not
// end it. The permit is released before the status is sent, so a client with a limit of 1 can send
// its next call at once. If etcd does not confirm the release, it continues in the background after
// the session's ReleaseTimeout.
//
// The handler's context ends with the client's, as ever, and when the permit is lost
// (concurrency.ErrLost is its cause). FromContext returns the permit, with its fencing token. A
// client that leaves while its call waits frees its place in the queue. A call waits there for at
// most Options.Wait; with a Wait of 0 it never does, and an etcd that does not answer delays it by at
// most concurrency.TryTimeout.
//
//	| call                                            | answer                                     |
//	|-------------------------------------------------|--------------------------------------------|
//	| the key's limit is reached                      | RESOURCE_EXHAUSTED, KEY_FULL and RetryInfo |
//	| the key's limit is 0: it is paused              | RESOURCE_EXHAUSTED without RetryInfo       |
//	| the total, or Single's limit, is reached        | UNAVAILABLE, TOTAL_FULL and RetryInfo      |
//	| it is 0: all keys are paused                    | UNAVAILABLE without RetryInfo              |
//	| the rate has no token now                       | UNAVAILABLE, RATE_EXCEEDED and RetryInfo   |
//	| etcd does not answer, or refuses a write        | UNAVAILABLE and RetryInfo; see Outage      |
//	| etcd answers later than Wait                    | UNAVAILABLE and RetryInfo                  |
//	| the session is closed or has too many requests, | UNAVAILABLE and RetryInfo                  |
//	| or the limiter too many keys                    |                                            |
//	| the permit was lost, and the handler's error    |                                            |
//	| follows from that: it may have taken effect     | UNKNOWN, LOST                              |
//	| the request was evicted while it waited         | UNAVAILABLE, LOST and RetryInfo            |
//	| the call's context ended while it waited        | CANCELLED or DEADLINE_EXCEEDED             |
//	| the ID of Options.Each is in use                | ABORTED, HELD and RetryInfo                |
//	| the key is empty or too long, an option of      | INTERNAL                                   |
//	| Options.Each is wrong, its weight is above the  |                                            |
//	| limit of the key or the total, a limit or rate  |                                            |
//	| differs from the stored one, or the context has |                                            |
//	| a permit of the same limiter already            |                                            |
//
// These answers have an ErrorInfo whose domain is Domain and whose reason is one of the Reason
// constants. RetryInfo is from 1 to 60 seconds, computed from the queue and from how many callers
// this process has sent away already; without an estimate it doubles up to 32 seconds under load. It
// is jittered in any case. A server says the same to gRPC's own retry policy, which reads no RetryInfo, by the trailer
// grpc-retry-pushback-ms: without RetryInfo it is -1, and the policy does not send the call again. A client whose calls have
// such a policy and no deadline waits for that time.
//
// # Outages
//
// An outage begins when etcd has been silent for Options.Patience. From then on one call a second
// asks, and the others are answered at once by the policy, until etcd answers. OnOutage is called at
// the outage's beginning and end. Closed answers UNAVAILABLE. Open runs the calls without a permit,
// and calls ReportError for each of them. Nothing bounds the calls of a process that is cut off:
// together with those of the processes that are not, and after healing until the last of them has
// ended, more run than the limit allows. Share runs calls without a permit within the process's share
// of the limit, from when the session has lost its lease: in one outage at most twice as many calls run as
// the limit allows, and each later cut of other processes can add the limit once more. The comment of
// package limithttp says how the share is found and what it keeps;
// concurrency.Semaphore.Share shows it.
//
// # Rates
//
// Options.Rate limits how often calls begin, in the whole fleet and all keys together: in every
// window of length T at most Rate.PerSecond × T + Rate.Burst, by the moment at which the token is
// taken. Each limited call takes a token of it. A nil limiter means that there are tokens and no
// permits: FromContext then returns false for a call that has no other permit.
//
// With a limiter, a call takes its token under its permit, immediately before the handler: the
// rate counts what begins, rather than what arrives. A call without a token releases its permit, so
// each one that the rate refuses costs two writes to etcd. Two interceptors, the rate alone in front,
// refuse without a request to etcd, but a token is then also taken for a call that gets no permit.
//
// A process takes tokens without etcd until the lease of its shares is no longer trusted: a
// shorter outage changes nothing. Then Closed refuses, and Open lets the calls pass, also without
// a token. A call that passes under Open without a permit takes a token as long as the process has
// some; one with a permit and without a token is refused. Share is an error at construction: a
// session that has lost its lease has no tokens, so no call would run under the share.
//
// A process begins without a token: see concurrency.RateLimiter. Its first calls wait for one up to a
// second, whatever Wait is. A call whose token comes after Wait, for certain, is refused at once. The
// rate is the service's own, so a refusal is UNAVAILABLE.
//
// # Not guaranteed
//
// That a handler which never returns gives its permit to others: it holds it for as long as the
// process lives. concurrency.MaxHold, in Options.Each, ends the permit and the handler's context.
//
// That a result is withheld if the permit was lost. A handler that succeeds nevertheless, or fails for
// another reason, has its result sent, and ReportError gets the error.
//
// A panic of Options.Key, of Options.Each or of a handler is passed on, and gRPC's server ends the
// process by it unless an interceptor in front recovers. No permit is left behind by it.
//
// gRPC's health checks and reflection are not limited, on both sides, unless Options.Methods says so.
//
// Chain the interceptors behind authentication. Under idempotency.TakeOver chain them behind that of idemgrpc: a replay
// needs no permit, and a call that is refused executes when it is repeated. Under idempotency.Refuse chain them in front
// of it. Behind it, the outcome of a call that is refused is unknown until an operator resolves it: an interceptor between
// the two may have called the handler before, as one that retries does. In either order a lost permit ends the handler's
// context.
//
// A second one of the same Limiter within the first is an error (INTERNAL), since two calls could wait for each other;
// of another Limiter it is fine, and the waits add up.
package limitgrpc
