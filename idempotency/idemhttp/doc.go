// Package idemhttp does HTTP requests once: a server's handler behind its Middleware runs
// once for each Idempotency-Key, and duplicates get the response that it has given. It
// follows draft-ietf-httpapi-idempotency-key-header-07.
//
// # Guaranteed
//
// What package idempotency guarantees, for requests of one Scope, operation and key: the
// handler does not run without a claim (unless FailOpen is set), nor after its response was
// recorded, whatever the response's size or form. A response is sent when it has been
// recorded, or when that has taken 5 seconds and goes on in the background. It is not sent if
// it may turn out not to be the one that counts: if the session was lost meanwhile or
// MaxExecution has passed, so that another may have taken over, or if that writing goes on and
// the handler has given something to Attempt.Attach. That holds for refusals that are not
// recorded, too. The client then gets a 409 and may ask again, or a 500 if etcd refuses the
// operations that were given to Attach. A response that was streamed is cut off. A client that
// hangs up does not stop the handler, whose outcome is recorded.
//
// A replay has the status, headers, trailers and body that the handler gave, byte for byte,
// except for Date, for headers about one connection (such as Transfer-Encoding), and for
// those that could give one client's session to another: Set-Cookie, WWW-Authenticate
// and their like are never recorded, nor is what NeverStore names. It is marked with
// Idempotent-Replayed: true.
//
//	| a request                                  | is answered by                             |
//	|--------------------------------------------|--------------------------------------------|
//	| without a key                              | 400, unless Optional is set                |
//	| with a key that is none                    | 400                                        |
//	| with a key used with another payload, or   |                                            |
//	| for another virtual host (Options.Host)    | 422, also while that one is in progress    |
//	| whose duplicate is in progress             | 409 and Retry-After; later, if Wait is set |
//	| whose body is above MaxRequest             | 413                                        |
//	| that was done                              | its response, replayed                     |
//	| whose outcome is unknown, under Refuse     | 409, with the reference for Resolve        |
//	| of a scope with too many records           | 429 and Retry-After; a repetition is not   |
//	| whose response cannot be recorded          | 500                                        |
//	| while etcd is away, full or closed         | 503 and Retry-After; see FailOpen          |
//
// These answers of the Middleware's own are problem+json (RFC 9457), with a member "code"
// that distinguishes them, and "retryable". Where an operator has to act, for an outcome that is
// unknown or unreadable, a member "ref" names the record: see idempotency.Store.Resolve.
//
// # Not guaranteed
//
// That a body above MaxResponse is replayed: it goes to the first client as it is,
// duplicates get status and headers, no body, and Idempotency-Body-Omitted: true. The same
// goes for a response without an end. A response that breaks off, with a body shorter than
// its Content-Length though the client is there, goes to the first client as it is; it is
// not replayed, and its attempt is lost, unless the handler says with Decide that the
// request was done: then duplicates get it without the body. Of a hijacked connection only that it was hijacked is
// recorded: duplicates get 409. What the handler sends to other requests is not part of it,
// nor are responses with 1xx, which go to the first client only.
//
// That two clients with one Scope cannot see each other's responses: a client that knows
// scope, operation, key and payload gets the response. Separate clients with Scope.
//
// # Where it stands
//
// Behind what authenticates, limits and logs, in front of what does the work. What was set
// in the response's headers before it is not recorded, and is set anew for replays, unless
// the handler has changed or removed it. A request's body may be decoded in front of it. What
// compresses belongs before it; a response that was compressed behind it is replayed so, or,
// if it is gzip, unpacked for a client that does not accept it. A framework whose handlers return errors has to write these behind it: in
// echo, the Middleware stands before the whole echo.Echo, or a middleware that calls
// Context.Error behind echo.WrapMiddleware. What is written later reaches no client, and
// ReportError gets an error for it.
//
// What answers for a handler that has not returned yet must stand in front of it, too:
// http.TimeoutHandler, and frameworks' middleware of that kind. Behind it, the 503 releases the
// key (see RememberFinal) while the work continues, and a repetition runs beside the first. In
// front, the work continues alone and its outcome is recorded: repetitions are answered by 409
// until then, and by a replay after it.
//
// The handler's context is that of the attempt: see idempotency.FromContext for its number,
// fencing token, child keys and recovery points. Transport sends child keys by itself.
// Operations given to Attempt.Attach take effect if the response is recorded and its status is
// below 400: a handler that fails writes nothing, even where its response is recorded. The
// handler must not settle the attempt. Client reports whether the client is still there.
package idemhttp
