package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/etcdkit/etcdkit/concurrency/limithttp"
)

// slowest is how long the partner may take. Keep it below two thirds of the session's TTL, which is 15 s by default: the
// permits of a process that is paused go to others after that at the earliest, when its calls have ended.
const slowest = 8 * time.Second

// errBusy is for a caller that may come back: nothing was sent.
var errBusy = errors.New("the partner is busy")

// call sends one request. A caller that hangs up, which ends ctx, does not end it: the partner would work on, and the
// permit would be free for another request.
func call(ctx context.Context, partner *http.Client, url string) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait+starts+slowest) // the permit, the token, and the answer
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := partner.Do(req)
	switch {
	case errors.Is(err, limithttp.ErrNotSent): // the limit or the rate is full, the wait was too long, or etcd is away
		return "", fmt.Errorf("%w: %w", errBusy, err)
	case err != nil:
		return "", err // the partner may have got the request
	}
	defer resp.Body.Close() // the permit is held until then
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return string(body), err
}
