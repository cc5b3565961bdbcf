package ratelimit

import (
	"time"

	"github.com/etcdkit/etcdkit/internal/rate"
)

// Why a call has no token. Each of these types is an error, so that it returns like one, and nothing wraps it; its text
// is for no reader. Another one is *queue.Outage.

// Exceeded is a refusal because there is no token.
type Exceeded struct {
	Rate       rate.Rate     // zero if it was not read, or not since the process was idle
	RetryAfter time.Duration // when there is a token for one more call, as far as that is known; or 0
	Waiting    int           // calls that wait before it
	Starting   bool          // the process has had no token since it began
	Late       bool          // the turn of the call comes after the end of its ctx: when, and when that ends
	Turn, Left time.Duration
}

func (*Exceeded) Error() string { return "there is no token" }

// trouble is why the process may take no token, as far as etcd has said so: the last error of each kind, until the same
// succeeds.
type trouble struct {
	read    error // the queue of shares, or the rate, cannot be read
	tokens  error // the tokens of a slow rate cannot be read, or the process cannot note that it takes some
	acquire error // no share can be acquired
}

// WaitEnd is the end of a wait by its ctx, with why there was no token until then.
type WaitEnd struct{ Ctx, For error }

func (*WaitEnd) Error() string { return "the wait has ended" }
