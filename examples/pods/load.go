package main

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// answer is the answer to one request.
type answer struct {
	At       int64 // when it arrived, by hostclock
	Status   int   // 0 if there was none
	Took     time.Duration
	Waited   time.Duration // until its permit, if it was served
	Instance string
	Without  bool // it ran without a permit
}

func (a answer) served() bool { return a.Status == http.StatusOK }

// client sends requests to the proxy.
type client struct {
	url  string
	http *http.Client
}

func newClient(url string) *client {
	return &client{url, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// send sends one request to the path of a policy.
func (c *client) send(ctx context.Context, policy string) (a answer) {
	begun := time.Now()
	defer func() { a.Took, a.At = time.Since(begun), hostclock.Now() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/"+policy, nil)
	if err != nil {
		panic(err) // it is well formed
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return a
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return a
	}
	a.Status, a.Instance, a.Without = resp.StatusCode, resp.Header.Get(hInstance), resp.Header.Get(hWithout) != ""
	arrived, _ := strconv.ParseInt(resp.Header.Get(hArrived), 10, 64)
	admitted, _ := strconv.ParseInt(resp.Header.Get(hAdmitted), 10, 64)
	a.Waited = time.Duration(admitted - arrived)
	return a
}

// pause is how long a client waits after a refusal. It is short, to keep up the load; a client of
// yours follows Retry-After.
const pause = 200 * time.Millisecond

// load begins to send requests, by clients that send one after the other. stop returns when the last
// answer has arrived.
func (d *demo) load(ctx context.Context, policy string) (stop func()) {
	ending := make(chan struct{})
	var wg sync.WaitGroup
	for range d.clients {
		wg.Go(func() {
			for {
				a := d.client.send(ctx, policy)
				d.note(a)
				again := time.Now()
				if !a.served() {
					again = again.Add(pause)
				}
				select {
				case <-ending:
					return
				case <-ctx.Done():
					return
				case <-time.After(max(time.Millisecond, time.Until(again))):
				}
			}
		})
	}
	return sync.OnceFunc(func() { close(ending); wg.Wait() })
}

// atOnce sends n requests at once and returns when all are answered.
func (d *demo) atOnce(ctx context.Context, policy string, n int) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { d.note(d.client.send(ctx, policy)) })
	}
	wg.Wait()
}
