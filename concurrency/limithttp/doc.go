// Package limithttp limits how many requests of one key (a tenant, a user, a model, a route) the
// handlers of a whole fleet serve at the same time. It runs each request under a permit of a
// concurrency.Limiter: a concurrency.KeyedLimiter, or one semaphore (concurrency.Single).
// Transport limits outgoing requests likewise. A concurrency.RateLimiter limits how often requests
// begin, beside such a limiter or alone (Options.Rate).
//
// # Guaranteed
//
// The guarantees of package concurrency: a handler runs under a permit of its own, so at most as
// many hold permits at a time as the limit allows, in all processes together; a handler that does not return when its permit
// is lost can run beside the next one. Requests are admitted in the order
// of their queue: that of their key, and then that of the total. If a limit is lowered, handlers that
// run already continue. Options.Outage says what an outage of etcd does to that.
//
// A permit is held until the handler has returned, or has panicked: a client that hangs up does not
// end it. What the handler has written is by then with net/http, whose buffer (4 KiB, in HTTP/1) is
// sent after the release, so a client with a limit of 1 that has read a short response can send its
// next request at once. In HTTP/1, one whose length is known can arrive before that if it is long
// or was flushed: then the client's next request, on another connection, needs a Wait. If etcd does
// not confirm the release, it continues in the background after the session's ReleaseTimeout.
//
// The handler's context ends with the client's, as ever, and when the permit is lost
// (concurrency.ErrLost is its cause). A handler that checks its context stops before another
// request is admitted in its place, with the exceptions of G4 in docs/guarantees.md. FromContext
// returns the permit, with its fencing token.
//
// A client that leaves while its request waits frees its place in the queue. A request waits there
// for at most Options.Wait; with a Wait of 0 it never does, and an etcd that does not answer delays
// it by at most concurrency.TryTimeout.
//
//	| request                                          | answer                                    |
//	|--------------------------------------------------|-------------------------------------------|
//	| the key's limit is reached                       | 429, Retry-After, RateLimit-Policy        |
//	| the key's limit is 0: it is paused               | 429 without Retry-After                   |
//	| the total, or Single's limit, is reached         | 503 and Retry-After                       |
//	| it is 0: all keys are paused                     | 503 without Retry-After                   |
//	| the rate has no token now                        | 503 and Retry-After                       |
//	| etcd does not answer, or refuses a write         | 503 and Retry-After; see Outage           |
//	| etcd answers later than Wait                     | 503 and Retry-After                       |
//	| the session is closed or has too many requests,  | 503 and Retry-After                       |
//	| or the limiter too many keys                     |                                           |
//	| the permit was lost, and no response had begun   | 500: it may have taken effect             |
//	| the request was evicted while it waited          | 503 and Retry-After                       |
//	| the request's context ended while it waited      | 503, if the client is still there         |
//	| the ID of Options.Each is in use                 | 409 and Retry-After                       |
//	| the key is empty or too long, an option of       | 500                                       |
//	| Options.Each is wrong, its weight is above the   |                                           |
//	| limit of the key or the total, a limit or rate   |                                           |
//	| differs from the stored one, or the context has  |                                           |
//	| a permit of the same limiter already             |                                           |
//
// These answers are problem+json (RFC 9457) with the member "code". That of a lost permit has the headers that the handler
// has set, without Retry-After and those that describe its body. Requests that run get no header of this package. RateLimit-Policy and RateLimit are those of
// draft-ietf-httpapi-ratelimit-headers-11, with the unit "concurrent-requests"; they are sent for
// the client's own limit alone. Retry-After is from 1 to 60 seconds. It is computed from the queue
// and from how many clients this process has sent away already; without an estimate it doubles up
// to 32 seconds under load, as in Kubernetes. It is jittered in any case.
//
// A client of gRPC, gRPC-Web or Connect reads the status alone, as its protocol demands: for 429 and 503 it gets
// the code unavailable, for 409 and 500 unknown, without the reason and Retry-After. Options.OnProblem can write an error
// of the protocol instead, as connect.ErrorWriter does: docs/integrations.md has one. A server of gRPC alone has
// package limitgrpc.
//
// # Outages
//
// An outage begins when a request gets no answer and etcd has been silent for Options.Patience.
// From then on one request a second asks, and the others are answered at once by the policy, until
// etcd answers. OnOutage is called at the outage's beginning and end. Permits that were held when
// the outage began end before their session's lease expires, at most a TTL after its last renewal,
// whatever the policy.
//
// Closed answers 503.
//
// Open runs the requests without a permit, and calls ReportError for each of them. Nothing bounds the
// requests of a process that is cut off: together with those of the processes that are not, and after
// healing until the last of them has ended, more run than the limit allows.
//
// Share runs requests without a permit within the process's share of the limit, from when the
// session has lost its lease, and calls ReportError for each of them. Before that, and beyond the
// share, requests are answered with 503. The share is the limit divided by the number of sessions
// that share it, rounded down, as both were last read; a session counts them every 5 seconds, or
// every third of its TTL if that is shorter. The share is 0 if their number is not known: until the
// session has used the limit for that time and a TTL. Work of the process that began under permits uses
// the share as well, as long as it runs. In one outage at most twice as many requests run as the limit
// allows: the limit itself for the processes that reach etcd, and the shares of those that are cut off. If
// all are cut off at once, it is the limit, once the work under lost permits has stopped. If processes are
// cut off one after the other, each later cut can add the limit once more: those that are left count
// fewer sessions, so their shares are greater. When etcd answers again, work that began under the share gets permits first; requests wait for that, within Wait.
// Calls for a permit beside the middlewares do not: see concurrency.Semaphore.Share.
// Only the limit of all keys together is divided: that of a single key, and its pause, is not
// kept meanwhile. concurrency.Semaphore.Share shows the share and what runs under it.
//
// # Rates
//
// Options.Rate limits how often requests begin, in the whole fleet and all keys together: in every
// window of length T at most Rate.PerSecond × T + Rate.Burst, by the moment at which the token is
// taken. Each limited request takes a token of it. A nil limiter means that there are tokens and
// no permits: FromContext then returns false for a request that has no other permit.
//
// With a limiter, a request takes its token under its permit, immediately before the handler: the
// rate counts what begins, rather than what arrives. A request without a token releases its permit,
// so each one that the rate refuses costs two writes to etcd. Two middlewares, the rate alone in
// front, refuse without a request to etcd, but a token is then also taken for a request that gets
// no permit.
//
// A process takes tokens without etcd until the lease of its shares is no longer trusted: a
// shorter outage changes nothing. Then Closed refuses, and Open lets the requests pass, also
// without a token. A request that passes under Open without a permit takes a token as long as the
// process has some; one with a permit and without a token is refused. Share is an error at
// construction: a session that has lost its lease has no tokens, so no request would run under the
// share.
//
// A process begins without a token: see concurrency.RateLimiter. Its first requests wait for one up to
// a second, whatever Wait is. A request whose token comes after Wait, for certain, is refused at once.
// The rate is the service's own, so a refusal is 503, without RateLimit fields. Where it is that of one client, Options.OnProblem can answer 429.
//
// # Not guaranteed
//
// That a client of HTTP/1.1 which leaves is noticed while a large request waits: net/http looks for
// that only once the body was read. Bodies of up to Options.Buffer are read before the request
// waits, in the time that http.Server.ReadTimeout gives a client; Wait begins then. For a larger one,
// one of unknown length, as in chunks, and one with Expect: 100-continue, the place in the queue is kept until Wait
// has passed, and the permit is held while the handler reads the body: ReadTimeout bounds that, too. In HTTP/2 a client
// that leaves is noticed in any case. A body of unknown length arrives as it is sent: its client may wait for an
// answer before it sends more. A handler of HTTP/1 that answers before it has read a body of known length, with
// http.ResponseController.EnableFullDuplex, needs a Buffer of -1.
//
// That a handler which never returns gives its permit to others: it holds it for as long as the
// process lives. concurrency.MaxHold, in Options.Each, ends the permit and the handler's context.
//
// That a response is withheld if the permit is lost after it has begun. It stays as it is, and
// ReportError gets the error.
//
// # Hijacked connections
//
// After http.Hijacker or http.ResponseController.Hijack, as for a WebSocket, the permit is held
// until the handler has returned or panicked and the connection is closed, in either order;
// ServeHTTP of the Middleware returns then. A lost permit does not close the connection; ServeHTTP
// then returns with the handler, except under Share, where the connection uses the share until it
// is closed. The connection is of another type than the server's: its method NetConn returns that. A
// close through NetConn counts too, within a tenth of a second, unless a net.Listener of the program's own
// returns connections that are no syscall.Conn.
//
// The ResponseWriter has the optional interfaces of the server's, and no others: http.Flusher,
// http.Hijacker, http.Pusher, and io.ReaderFrom, by which files are sent without a copy. Behind
// http.TimeoutHandler it is no http.Flusher. It is always an http.CloseNotifier. http.ResponseController
// works as without the Middleware, and so do 1xx responses, HTTP/2 and deadlines.
//
// # Where to put it
//
// Put the Middleware behind authentication and in front of what costs something. Health checks and
// metrics belong outside of it, or Options.Key returns false for them: an orchestrator that gets no
// answer ends the process. Those of gRPC pass, as does its reflection. Put it directly behind
// that of idemhttp: a replay needs no permit, and a request that is refused, also by a 409, is not recorded and
// executes when it is repeated, under idempotency.Refuse too. An http.ServeMux may be between. With another handler in
// between, which may have done something, the status decides, and of a 409 its Retry-After. Behind idemhttp a client that
// leaves does not end the wait. In front of idemhttp, each replay needs a
// permit. In either order a lost permit ends the context of the handler. A second Middleware of the same Limiter within the first is an error
// (500), since two requests could wait for each other; of another Limiter it is fine, and the waits
// add up.
//
// A timeout that answers before the handler has returned, such as http.TimeoutHandler, belongs in
// front of the Middleware: in front, the permit is held until the handler has returned; behind, it
// is released with the timeout's answer, while the handler continues.
package limithttp
