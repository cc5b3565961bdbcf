// Package silence bounds how long a call of Begin waits for etcd's first answer. It is for the middlewares:
// a caller of Begin has its ctx.
package silence

import "time"

// Bound returns O, which is idempotency.Option. With it Begin waits at most that long for the first answer of etcd,
// in addition to ctx. While etcd is known to be away, it is refused at once, as if it had waited: with the
// *concurrency.UnavailableError of the call that has found the outage. One such call a second asks etcd, and
// waits at most a second for its first answer, every tenth of them as long as d.
//
// What this process knows of the request without etcd comes first: a recorded outcome that it still has is
// replayed, and an attempt in progress is waited for.
func Bound[O ~func(S), S interface{ BoundSilence(d time.Duration) }](d time.Duration) O {
	return func(s S) { s.BoundSilence(d) }
}
