// Package idemgrpc does unary gRPC calls once: a server's handler behind its interceptor
// runs once for each idempotency-key in the call's metadata, and duplicates get the
// message, or the status, that it has returned. Health checks, reflection and methods without
// side effects need no key: see NeedsKey.
//
// # Guaranteed
//
// What package idempotency guarantees, for calls of one Scope, full method and key: the
// handler does not run without a claim (unless FailOpen is set), nor after its outcome was
// recorded. The client that cancels, or whose deadline passes, does not end the handler's
// context, and the outcome is recorded. It is returned when it has been recorded, or when that
// has taken 5 seconds and goes on in the background; not if it may turn out not to be the one
// that counts, since another attempt may have taken over, or since the handler has given
// something to Attempt.Attach. That holds for refusals that are not recorded, too. A replay is
// marked by idempotent-replayed: true in the header. Streams are refused unless PassStreams
// is set: they are never silently unguarded.
//
//	| a call                                   | is answered by                          |
//	|------------------------------------------|-----------------------------------------|
//	| without a key, or with one that is none  | INVALID_ARGUMENT                        |
//	| with a key used with another message     | FAILED_PRECONDITION, REUSED             |
//	| whose duplicate is in progress           | ABORTED and RetryInfo; later, with Wait |
//	| that was done                            | its message or status, replayed         |
//	| whose outcome is unknown, under Refuse   | FAILED_PRECONDITION, UNKNOWN            |
//	| whose outcome may not count              | ABORTED and RetryInfo                   |
//	| whose outcome etcd does not take         | INTERNAL                                |
//	| while etcd is away, full or closed       | UNAVAILABLE and RetryInfo; see FailOpen |
//
// The interceptor's own answers have an ErrorInfo whose domain is Domain and whose reason is
// one of the Reason constants.
//
// # Not guaranteed
//
// That headers and trailers of a response are replayed: only the message is, or code, text
// and details of the status. That a message above MaxResponse is: duplicates get
// FAILED_PRECONDITION, NOT_KEPT. That two releases of a program write one message as the same
// bytes: protobuf does not promise it, though it holds while the message's own definition
// and the library stay; a duplicate that crosses such an upgrade may be told REUSED.
//
// Messages are protobuf; those of other codecs are refused. The handler's context is that
// of the attempt: see idempotency.FromContext. Operations given to Attempt.Attach take effect if the
// outcome is recorded and its code is OK: a handler that fails writes nothing, even where its
// status is recorded. The handler must not settle the attempt.
package idemgrpc
