package limitgrpc

import "github.com/etcdkit/etcdkit/concurrency/internal/middleware"

// ErrNotSent: nothing of a call was sent, because it got no permit or no token. That is said of this try alone: if a retry
// is around the interceptor, an earlier try may have been sent. An error of a client's interceptor, for
// a call or a new stream, matches it if and only if the invoker or streamer was not called: the limit or the rate was
// full, etcd did not answer, the call's context ended or the call was evicted while it was queued, the session is
// closed, or an option is wrong. The error has a status, and matches the reason as well, such as concurrency.ErrFull.
// An error of the invoker, of the streamer or of a stream does not match, nor that of a call whose permit was lost
// after it had begun: the server may have received the call. If the invoker is an interceptor of this package too, its
// errors are passed on as they are.
//
// Only the process of the client can match it: of a status that is sent on, the text says that the call was not sent.
//
// limithttp.ErrNotSent is the same value.
var ErrNotSent = middleware.ErrNotSent
