// Package unclaimed is for the option FailOpen of the middlewares: they run a handler without a claim if a request cannot
// begin, and nothing is known of it. A caller of Begin does that by itself, after idempotency.ErrUnseen.
package unclaimed

import "context"

// Run is the right to run a request's handler without a claim. Until End, the other calls of this process for the request wait
// for the run as they do for an attempt, but no longer than until the session's margin has passed after its context has ended:
// then they may begin an attempt.
type Run interface {
	// Start returns the context of the handler: it has the keys of an attempt, is no attempt's, and does not end with the
	// client. It ends after MaxExecution, and when a permit or a run of a job is lost under which ctx runs; stop frees it.
	Start(ctx context.Context) (_ context.Context, stop func())
	End()
}

// Keep returns O, which is idempotency.Option. With it, a call of Begin that returns idempotency.ErrUnseen sets into if
// its caller may run the handler, which it does not beside another call of this process that asks etcd for the request.
func Keep[O ~func(S), S interface{ KeepUnclaimed(into *Run) }](into *Run) O {
	return func(s S) { s.KeepUnclaimed(into) }
}
