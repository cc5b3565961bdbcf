// Package idemhttp records the responses of a server's handler: behind its Middleware, a request with
// an Idempotency-Key for which a response is recorded gets a replay of it, and the handler does not
// run again. It follows draft-ietf-httpapi-idempotency-key-header-07.
//
// # Guaranteed
//
// The guarantees of package idempotency, for requests with the same Scope, operation and key:
// the handler does not run without a claim (unless FailOpen is set), nor after its response was
// recorded, whatever the response's size or form.
//
// A response is sent after it was recorded. If recording takes longer than 5 seconds, it
// continues in the background, and the response is sent as long as no other attempt can have
// another outcome. The response, a refusal included, is withheld if another attempt may have
// taken over (the session was lost, or MaxExecution has passed), and if it is still being
// recorded and the handler has called Attempt.Attach. Then the client gets a 409 and may repeat
// the request, or a 500 if etcd refuses the operations given to Attach; a response that was
// already being streamed breaks off.
//
// A client that hangs up does not stop the handler, whose response is recorded. If an attempt ends as lost, its response
// below 400 is withheld, whether OnStatus or Decide has said Abandon: the client gets a 409, or a stream that breaks off. A
// response that was sent while it was still being recorded can be of an attempt that is lost later.
//
// A replay has the status, headers, trailers and body of the handler's response, byte for byte,
// except for Date, for headers about one connection (such as Transfer-Encoding), and for
// headers that could give one client's session to another: Set-Cookie, WWW-Authenticate and
// similar ones are never recorded, nor are those in NeverStore. A replay has the header
// Idempotent-Replayed: true.
//
//	| request                                       | answer                                     |
//	|-----------------------------------------------|--------------------------------------------|
//	| no key                                        | 400, unless Optional is set; see "Calls of |
//	|                                               | RPC"                                       |
//	| malformed key                                 | 400                                        |
//	| key was used with another payload, or for     |                                            |
//	| another virtual host (Options.Host)           | 422, also while that one is in progress    |
//	| a duplicate is in progress                    | 409 and Retry-After; later, if Wait is set |
//	| body has not arrived: the connection broke,   |                                            |
//	| or the server's ReadTimeout has passed        | 408; this request has not begun            |
//	| body larger than MaxRequest                   | 413                                        |
//	| response was recorded                         | a replay                                   |
//	| response is withheld                          | 409 and Retry-After; with the reference if |
//	|                                               | its outcome is unknown, under Refuse       |
//	| outcome is unknown, under Refuse: after a     |                                            |
//	| crash, a panic, 5xx, 408, 499, 401, 429 …     | 409, with the reference for Resolve        |
//	| scope has too many records                    | 429 and Retry-After; replays continue      |
//	| etcd refuses what was given to Attach         | 500                                        |
//	| etcd is unavailable or nearly full,           |                                            |
//	| or the session is closed                      | 503 and Retry-After; see FailOpen          |
//
// A duplicate of a request in progress does not wait unless Options.Wait is set, unlike
// idempotency.Do, which waits until its ctx is done.
//
// These answers are problem+json (RFC 9457), with the members "code" and "retryable". If an
// operator has to act, because an outcome is unknown or unreadable, the member "ref" identifies
// the record: see idempotency.Store.Resolve, and Response.Encode for the result. Set Note, by which the
// operator recognizes the request.
//
// The answer that an outcome is unknown, or becomes so by a conflict under Refuse, has the header
// Idempotency-Outcome: unknown. So has the first answer, the response of the attempt itself, unless it was streamed; its
// Retry-After is removed, since a repetition is not executed. If it passes through a
// second Middleware, as of a gateway in front of the service, it is not recorded there: with TakeOver the next
// duplicate asks the service again, so it gets the outcome once an operator has resolved the request there. With Refuse
// it is unknown in front as well, since what else the gateway has done is not known: resolve the request of
// the service first, and then that of the gateway, with the same result or, if the gateway does nothing but pass
// requests on, with idempotency.NotDone and EvenIfAlive. A handler that makes a response of its own of that answer sets
// the header, or calls Decide; grpc-gateway need not, whose errors have the codes and the reasons of idemgrpc in their JSON.
//
// A client of gRPC, gRPC-Web or Connect gets an error of its protocol in place of a problem, with the code,
// the ErrorInfo and the RetryInfo of package idemgrpc: see "Calls of RPC" below.
//
// # Without etcd
//
// An outage begins when requests of the Store have waited for StoreTimeout, and etcd has answered none of them. Each
// client may leave earlier: waits of half a second and more add up. From then on one request a second asks etcd, and waits at most a second for its first answer,
// every tenth of them as long as StoreTimeout; the others get a 503 at once, or run at once with FailOpen.
// The first answer of etcd ends the outage. Latency below StoreTimeout begins none, nor does a pause of
// the process. With a StoreTimeout below an election of etcd, about 3 seconds, an election counts as an outage. What this
// process knows without etcd comes first: a response that it still has is replayed, and a duplicate waits for
// an attempt of this process as long as Wait.
//
// # What is recorded
//
// A response below 400 is recorded, and so is a final no, such as 400, 404, 409 or 422: a duplicate gets
// it again. After 5xx, 408, 423, 449, 499, a 409 with Retry-After and the statuses that mean a refusal before the work (401, 403,
// 407, 421, 425, 429) the next duplicate runs the handler again, with idempotency.TakeOver; with
// idempotency.Refuse it gets a 409 until an operator has called Resolve, since no status proves that
// nothing was done. The handler says that with Decide; or the refusal comes from in front of the
// Middleware, where authentication belongs, or from a limit of limithttp directly behind it, or with nothing but an
// http.ServeMux between. The whole table, for this package, for idemgrpc and for Do, is in docs/guarantees.md.
//
// A call of gRPC, gRPC-Web or Connect is judged by its code, as behind idemgrpc, wherever its protocol
// puts it, streams included: "unavailable" with status 200 is not recorded. A failure that a handler says
// in another form of body with status 200, as JSON-RPC and GraphQL do, is a success here: such a handler
// calls Decide.
//
// A handler that writes nothing has answered 200, as in net/http. If its context has ended by then, or that of Client if
// it has asked for it, it may have stopped for that reason: the attempt is lost, and the client gets a 409. The same holds
// if its own context has ended and it has streamed a part of a response with status 2xx, and with Client also if it has
// begun such a response before its client left. A handler that has done all of its work shows it by a Content-Length, or
// calls Decide with idempotency.Remember; the last frame of an RPC shows it, too.
//
// A 404 of a router is a final no, too. In front of a whole router, the Middleware replays the 404 of an instance
// whose release does not have a new route yet to the next release: put it behind the router, around the routes that
// need it. Of a call of RPC, a status without a code has the code that the client reads from it, none of which is recorded:
// 404 is unimplemented, 400 internal, and 409, 413 and 415 are unknown. If nothing but the type application/proto says that it
// is a call, that holds for 404 alone: a service of REST may take that type, too.
//
// # At most one request
//
// With idempotency.Refuse the handler runs at most once. That its client sends a request once is up to the client:
// net/http's own Transport repeats a POST with an Idempotency-Key, also under Refuse, if the connection breaks before
// the answer. So let what a handler sends to a service that does not know keys go through Transport, which sends it
// once, or without a key. The same holds for a proxy behind the Middleware, which passes the client's key on: set
// Transport as the Transport of an httputil.ReverseProxy.
//
// # Calls of RPC
//
// The Middleware serves handlers of connect-go, and grpc.Server as a handler: unary calls and streams of
// gRPC, gRPC-Web and Connect, recognized by their Content-Type, Connect-Protocol-Version or Connect-Timeout-Ms;
// a client that sends JSON with neither gets the Middleware's own answers as one of HTTP does. Connect's HTTP GET
// is for procedures without side effects, and passes without a key. So do calls of gRPC's own health checks and
// reflection.
//
// The Middleware's own answers have the codes and reasons of idemgrpc, such as ABORTED with IN_PROGRESS and a
// RetryInfo, for a body above MaxRequest RESOURCE_EXHAUSTED with TOO_LARGE, and for one that has not
// arrived UNAVAILABLE with INCOMPLETE. The status of HTTP is the one
// that the protocol gives to the code: Connect's for REUSED is 400, where a client of HTTP gets 422.
//
// A handler of gRPC-Web or Connect does not learn of codings that the client accepts beside gzip: in another one the end of a
// call could not be read. A call of gRPC-Web or a stream of Connect with a message that is compressed in another one is refused
// with PAYLOAD, since its answer would be in the same. If an end cannot be read nevertheless, the attempt is lost, its response is withheld, and ReportError gets
// an error.
//
// If a body was larger than MaxResponse, duplicates get NOT_KEPT: without its body, a response would be an
// empty message. Of a failure they get its code. The client's deadline (Grpc-Timeout, Connect-Timeout-Ms) does
// not end the context of a handler whose request is claimed, whatever the request.
//
// The handler runs when the whole request was read. A stream whose client waits for answers before it sends
// the next message ends with the client's deadline, and has not begun.
//
// Messages are compared as by idemgrpc, however they were encoded (Content). If the method is not in protobuf's
// registry, the body is compared byte by byte, and a client that encodes a message with a map again may get
// REUSED: most libraries encode a map in another order each time.
//
// docs/integrations.md has a program with connect-go.
//
// # Not guaranteed
//
// That every body is replayed. A body larger than MaxResponse is sent to the first client, and
// not recorded: duplicates get status and headers without a body, and
// Idempotency-Body-Omitted: true. The same holds for a response without an end.
//
// That a client of HTTP/1.0 notices that a response breaks off. Of a response that is streamed, because the handler has
// called Flush or it is larger than MaxResponse, the end is kept back until the outcome is recorded: the last byte of a
// Content-Length, the last frame of an RPC, or what ends the body in HTTP/1.1 and HTTP/2. In HTTP/1.0, as of a proxy that
// speaks it to its backends, a body without a Content-Length ends with the connection, also if the response is withheld.
//
// That a stream notices that its only reader has left. A handler of server-sent events has to end with
// Client: its own context continues, and Write and Flush succeed, also above MaxResponse, so that no work is
// left in the middle. A loop that looks at neither runs for MaxExecution, and Session.Close waits for it. What such a handler
// has sent when it ends is not recorded, unless it has called Decide with idempotency.Remember.
//
// That a client that reads slowly gets all of a streamed response: it must not hold the attempt until that counts as lost.
// As long as the outcome is not recorded, the write of each 32 KiB may block for 30 seconds, or for a quarter of
// MaxExecution if that is less, and all writes together for half of MaxExecution; a write may block for one second once
// Session.Close has begun or the attempt's context has ended. After that the response breaks off, the context of Client
// ends, Write and Flush succeed, and the outcome of the handler is recorded. No deadline of the server's or the handler's is
// extended. Of a connection of HTTP/2 that its client does not read, ServeHTTP returns when the server closes it.
// Without a claim (FailOpen), writes have no such bound.
//
// That a response that breaks off is replayed. If the body is shorter than its Content-Length,
// the first client gets what there is, and the attempt is lost, also if the client has left,
// unless the handler calls Decide with idempotency.Remember: then duplicates get the
// response without the body. Of a hijacked connection only the fact is recorded: duplicates
// get a 409. If its handler panics, the attempt is lost, as after any panic. Responses with status 1xx go to the
// first client only.
//
// That two clients with one Scope cannot see each other's responses: a client that knows
// scope, operation, key and payload gets the response. Give each client a Scope of its own.
//
// # Where to put it
//
// Put the Middleware behind authentication and logging, and in front of the handler; that of limithttp directly behind
// it, or with nothing but an http.ServeMux between, so that a replay needs no permit and a request that is refused may be
// repeated.
//
// Whether it is in front of http.StripPrefix, a router or a rewriting, or behind, does not matter: a
// request is known by the path that the client has sent, however that is percent-encoded. What a
// proxy sends counts as sent by the client. So if one proxy rewrites a path and another does not, a
// key is for another request behind each of them, unless Options.Op and Payload know both paths. A
// handler that makes several requests of one has to set their RequestURI.
//
// A key that was used for one virtual host is refused for another: see ByHost. A proxy that sends the
// name of each backend as the Host makes a host of each instance: a retry that reaches another
// instance is answered with 422, and ReportError says why. Let the proxy send the client's Host
// (r.Out.Host = r.In.Host in the Rewrite of a ReverseProxy, proxy_set_header Host $host in nginx), or
// set Options.Host. Forwarded and X-Forwarded-Host are not read: a client could set them.
//
// Response headers that were set in front of it are not recorded; they are set anew
// for a replay, unless the handler has changed or removed them. A request's body may be decoded
// in front of it. It must not be read there: a form whose values a handler in front has asked for is
// answered with 500, as is any body whose Content-Length shows it. An empty body of JSON or in parts without a
// Content-Length is answered with 400, and reported: a client that sends no body sends a Content-Length of 0. Of another
// body without a length nothing shows it, nor of one that was read in part: what was read does not count. Put compression
// in front of it, too; a response that was compressed behind it is replayed compressed, or, if it is gzip and no part (206),
// decompressed for a client that does not accept gzip.
//
// A framework whose handlers return errors has to write them behind the Middleware. In echo,
// wrap the whole echo.Echo with the Middleware, or use a middleware that calls Context.Error
// behind echo.WrapMiddleware, which alone has an empty 200 recorded for each error: see
// docs/integrations.md, also for gin. A response that is written after the handler has returned reaches
// no client, and ReportError gets an error.
//
// A timeout that answers before the handler has returned, such as http.TimeoutHandler, has to
// be in front of the Middleware. In front, the handler continues, its response is recorded, and
// duplicates get a 409 until then and a replay after it. Behind, the timeout's 503 ends the attempt
// while the handler continues: with TakeOver a duplicate runs beside it, and with Refuse an operator
// may resolve the request while its work continues.
//
// A timeout that waits for its handler, such as chi's Timeout, belongs in front as well: there its 504 comes too late. Behind,
// it comes on top of the late response, which is the outcome if it is below 400 and shows that it is whole: by a
// Content-Length, a status without a body, or as an object or array of JSON. Otherwise the attempt is lost, and the client
// gets the 504: the end of its context may have cut the handler off, or be the reason of the error.
//
// A middleware that recovers panics belongs in front, too. Behind, it makes a 500 of a panic, which
// is a failure as above, also if a part of the response was written before: the client gets the 500, with what was written
// after it, or a response that breaks off, also if the handler has said Remember, unless the first response is whole by its
// Content-Length. But if it writes no such status, a response without a Content-Length looks whole. If it has to be behind,
// let it call Decide with idempotency.Abandon: then the response is withheld.
//
// Behind a Middleware of the same store that has begun a request, a second one passes it on, and its
// options have no effect.
//
// The handler's ResponseWriter is an http.Flusher or http.Hijacker if http.ResponseController finds one in the server's,
// as it does not behind http.TimeoutHandler, and always an http.CloseNotifier. It is no io.ReaderFrom, since what is sent
// has to be recorded, and no http.Pusher, since a replay would not push.
//
// # The handler
//
// The handler's context is the attempt's: idempotency.FromContext returns the attempt, with its
// number, fencing token, child keys and recovery points. Transport sends child keys by itself.
// Operations given to Attempt.Attach take effect if the response is recorded and is a success: a
// handler that fails writes nothing, even if its response is recorded. The handler
// must not settle the attempt. Client returns the context of the client's request.
package idemhttp
