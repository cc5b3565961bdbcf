// Package observe is what a program can learn of etcdkit's calls while they run: hooks for metrics,
// traces, logs and tests. The packages concurrency, schedlock and idempotency call the hooks that
// SessionOptions.Hooks has; this package imports none of them, and nothing besides the standard
// library.
//
// Start brackets each call: it is called when the call begins, and the function that it returns when
// the call ends, with the outcome. Event reports what belongs to no call: a lost session, a late
// renewal, a limit that has changed.
//
//	acquire ──▶ end: granted, refused, gave up, lost, error
//	   hold ──────────────────────────────▶ end: released, unconfirmed, lost
//	                       release ──▶ end: released, unconfirmed, lost
//
//	claim ──▶ end: granted, refused, gave up, error
//	   run ───────────────────────────────▶ end: done, failed, lost
//
//	begin ──▶ end: granted, replayed, refused, gave up, error
//	   execute ───────────────────────────▶ end: done, failed, released, abandoned, lost
//	                        record ──▶ end: done, unconfirmed, refused, lost, error
//
// # Guaranteed
//
//   - Each Start is followed by exactly one call of the function that it returned, also if the call
//     panics. It comes before the call returns; for a hold, a run and an execution it comes when etcd
//     has confirmed the end, which may be in the background, and at the latest with the session.
//   - A hold begins after its acquire has ended and before the caller has the permit.
//   - Hooks are called without a lock of etcdkit's: a hook may call any method of the same session
//     except Session.Close, which waits for the hooks.
//   - A panic of a hook does not reach the call. Session.HookPanics counts such panics, the session logs a
//     warning, and the hooks receive HookPanicked. A hook that exits its goroutine (runtime.Goexit, which FailNow
//     of a test calls) is counted as well, but ends the call: a permit, a run or an attempt that the call has
//     just taken then stays until the session ends, and Session.Close waits for it.
//   - A slow hook delays only the call that it reports on: no renewal of the lease, no end of another
//     permit, no other call.
//
// # Not guaranteed
//
//   - Hooks are called by several goroutines at once.
//   - A process that is killed ends no call: what has begun in it never ends for its hooks.
//   - Events that the session reports (SessionLost, SessionRecovered, SessionClosed, LeaseRenewed,
//     LimitChanged, RateCalls) come in their order, and may come late if a hook is slow: of several late
//     LeaseRenewed only the one with the greatest Age is delivered, and late RateCalls are added up.
package observe
