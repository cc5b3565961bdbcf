// Package idemgrpc records the outcomes of a server's unary gRPC calls: behind its interceptor, a call
// with an idempotency-key in its metadata for which an outcome is recorded gets a replay of its message
// or status, and the handler does not run again. Health checks, reflection and methods without side effects need no key: see
// NeedsKey.
//
// # Guaranteed
//
// The guarantees of package idempotency, for calls with the same Scope, full method and key: the
// handler does not run without a claim (unless FailOpen is set), nor after its outcome was
// recorded. A client that cancels, or whose deadline passes, does not end the handler's context,
// and the outcome is recorded.
//
// An outcome is returned after it was recorded. If recording takes longer than 5 seconds, it
// continues in the background, and the outcome is returned as long as no other attempt can have
// another one. The outcome, a refusal included, is withheld if another attempt may have taken
// over (the session was lost, or MaxExecution has passed), and if it is still being recorded and
// the handler has called Attempt.Attach. A replay has idempotent-replayed: true in its header.
//
// A call that is repeated with its key is the same, however its message was encoded anew: with the
// entries of maps in another order, in an Any, and in fields and Anys whose types this program does
// not know. In such unknown data the order of a list does not count if the list could be a map.
//
// A key in quotes, as the HTTP header Idempotency-Key has it, is the same key without them: a gateway
// may pass the header on.
//
// Streams of methods that need a key are refused unless PassStreams is set. A client's streams get no key: there
// is no interceptor for them.
//
//	| call                                     | answer                                  |
//	|------------------------------------------|-----------------------------------------|
//	| no key, or a malformed one               | INVALID_ARGUMENT                        |
//	| key was used with another message        | FAILED_PRECONDITION, REUSED             |
//	| a duplicate is in progress               | ABORTED and RetryInfo; later, with Wait |
//	| outcome was recorded                     | a replay of the message or status       |
//	| outcome is unknown, under Refuse         | FAILED_PRECONDITION, UNKNOWN            |
//	| scope has too many records               | RESOURCE_EXHAUSTED and RetryInfo        |
//	| outcome is withheld                      | ABORTED and RetryInfo; UNKNOWN if it is |
//	|                                          | unknown, under Refuse                   |
//	| etcd refuses what was given to Attach    | INTERNAL                                |
//	| etcd is unavailable or nearly full,      |                                         |
//	| or the session is closed                 | UNAVAILABLE and RetryInfo; see FailOpen |
//
// A duplicate of a call in progress does not wait unless Options.Wait is set, unlike idempotency.Do,
// which waits until its ctx is done.
//
// These answers have an ErrorInfo whose domain is Domain and whose reason is one of the Reason
// constants. If an operator has to act, its metadata has the reference of the record: see
// MetadataRef, idempotency.Store.Resolve, and Encode for the result. Set Note, by which the operator
// recognizes the call.
//
// A handler that passes on UNKNOWN with its ErrorInfo, as a gateway in front of the service does, has no outcome yet: the
// status is not recorded. With TakeOver the next duplicate asks the service again; with Refuse the call is
// unknown here as well, and an operator resolves it after that of the service.
//
// grpc-gateway drops the header Idempotency-Key unless runtime.WithIncomingHeaderMatcher lets it pass, and
// makes 400 of FAILED_PRECONDITION: docs/integrations.md has the options that mend both.
//
// # Without etcd
//
// An outage begins when calls of the Store have waited for StoreTimeout, and etcd has answered none of them. Each
// client may leave earlier: waits of half a second and more add up. From then on one call a second asks etcd, and waits at most a second for its first answer, every tenth of
// them as long as StoreTimeout; the others are UNAVAILABLE at once, or run at once with FailOpen. The first
// answer of etcd ends the outage. Latency below StoreTimeout begins none, nor does a pause of the process. With a
// StoreTimeout below an election of etcd, about 3 seconds, an election counts as an outage. What this process
// knows without etcd comes first: an outcome that it still has is replayed, and a duplicate waits for an
// attempt of this process as long as Wait.
//
// # What is recorded
//
// OK is recorded, and so is a final no: INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION
// and OUT_OF_RANGE. After another code the next duplicate runs the handler again, with
// idempotency.TakeOver; with idempotency.Refuse it gets FAILED_PRECONDITION until an operator has called
// Resolve. No code proves that nothing was done: RESOURCE_EXHAUSTED may be what a provider's large
// answer became, after the charge. A handler that knows it returns idempotency.NothingDone of its error. So with Refuse,
// chain rate limits and those of limitgrpc in front: a call that they refuse has no record.
// Neither a message nor an error, which an interceptor returns that recovers a panic and has no named results, counts as
// idempotency.Abandon, whatever OnPanic says. If OnCode says Abandon of OK, the client gets ABORTED, IN_PROGRESS. The whole table is in docs/guarantees.md.
//
// # Not guaranteed
//
// That headers and trailers of a response are replayed: a replay has the message, or code, text
// and details of the status. That a message larger than MaxResponse is replayed: duplicates get
// FAILED_PRECONDITION, NOT_KEPT, as they do for a message whose type is not in
// protoregistry.GlobalTypes, such as a dynamic one; of a larger status they get the code. That a call is the same for two servers of which
// only one knows a field of its message: a duplicate during a rollout of a new field may get REUSED.
//
// # Behind grpc-gateway
//
// grpc-gateway drops the header Idempotency-Key unless runtime.WithIncomingHeaderMatcher maps it to
// idempotency-key; the quotes that its client sends are no part of the key. A replay has the header
// Grpc-Metadata-Idempotent-Replayed; ABORTED is 409 without Retry-After, and REUSED is 400.
//
// # The handler
//
// Messages are protobuf; those of other codecs are refused. The handler's context is the
// attempt's: idempotency.FromContext returns the attempt. Operations given to Attempt.Attach take
// effect if the outcome is recorded and its code is OK: a handler that fails writes nothing, even
// if its status is recorded. The handler must not settle the attempt. Client returns the context
// of the client's call.
package idemgrpc
