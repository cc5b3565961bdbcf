// Package waits measures how long requests wait for a permit: a handler in front of the limit and
// the one behind it stamp the response, and the client reads the stamps.
package waits

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// The headers of a response: the instance, when the request had arrived and had its permit, by
// hostclock, and whether it had none.
const (
	hInstance = "Instance"
	hArrived  = "Arrived"
	hAdmitted = "Admitted"
	hWithout  = "Without-Permit"
)

// Arrived returns a handler that stamps the responses of next. It belongs in front of the limit.
func Arrived(instance string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(hInstance, instance)
		w.Header().Set(hArrived, strconv.FormatInt(hostclock.Now(), 10))
		next.ServeHTTP(w, r)
	})
}

// Admitted stamps a response behind the limit. It returns the deadline of the request's permit;
// without a permit, permitted is false.
func Admitted(w http.ResponseWriter, r *http.Request) (deadline time.Time, permitted bool) {
	w.Header().Set(hAdmitted, strconv.FormatInt(hostclock.Now(), 10))
	p, ok := limithttp.FromContext(r.Context())
	if !ok {
		w.Header().Set(hWithout, "yes")
		return time.Time{}, false
	}
	return p.Deadline(), true
}

// Answer is the answer to one request.
type Answer struct {
	At       int64 // when the client had it, by hostclock
	Status   int   // 0 if there was none
	Took     time.Duration
	Admitted int64         // when it had its permit, by hostclock; 0 if it was not served
	Waited   time.Duration // until then
	Instance string
	Without  bool // it ran without a permit
}

// Served reports whether the handler behind the limit has answered.
func (a Answer) Served() bool { return a.Status == http.StatusOK }

// Client sends requests.
type Client struct {
	URL  string
	HTTP *http.Client
}

// NewClient returns a client without kept connections: if one breaks, net/http retries by itself.
func NewClient(url string) *Client {
	return &Client{url, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// Post sends a request without a body to a path. The answer is empty if the connection breaks or ctx
// ends.
func (c *Client) Post(ctx context.Context, path string) (a Answer) {
	begun := time.Now()
	defer func() { a.Took, a.At = time.Since(begun), hostclock.Now() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+path, nil)
	if err != nil {
		panic(err) // it is well formed
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return a
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return a
	}
	a.Status, a.Instance, a.Without = resp.StatusCode, resp.Header.Get(hInstance), resp.Header.Get(hWithout) != ""
	arrived, _ := strconv.ParseInt(resp.Header.Get(hArrived), 10, 64)
	if a.Admitted, err = strconv.ParseInt(resp.Header.Get(hAdmitted), 10, 64); err == nil {
		a.Waited = time.Duration(a.Admitted - arrived)
	}
	return a
}

// Percentile returns, in seconds, the smallest duration that at least that percentage of all does
// not exceed. It sorts all.
func Percentile(all []time.Duration, percent int) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return float64(all[max(0, (len(all)*percent+99)/100-1)].Milliseconds()) / 1000
}
