package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// client is the customer's side: it sends to the proxy.
type client struct {
	url  string
	http *http.Client
}

// newClient has no connection outlive its request: net/http repeats requests that have an
// Idempotency-Key by itself otherwise, when a connection that was kept breaks.
func newClient(url string) *client {
	return &client{url, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// request is one payment, which may be sent many times.
type request struct {
	way    string
	order  string
	key    string
	amount int
	harm   bool // the store fails after the charge
}

// path is what is requested.
func (x request) path() string { return "/pay/" + x.way + "/" + x.order }

// answer is what a client got.
type answer struct {
	Status int // 0 if there was none
	Header http.Header
	Body   []byte
	Took   time.Duration
}

// good tells whether the payment was made.
func (a answer) good() bool { return a.Status >= 200 && a.Status < 300 }

// code returns what a guard says that it is, if it is an answer of its own.
func (a answer) code() string {
	var problem struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(a.Body, &problem) != nil {
		return ""
	}
	return problem.Code
}

// create makes an order.
func (c *client) create(ctx context.Context, name string, amount int) error {
	for { // a server may be dead, and the proxy not know it
		a := c.post(ctx, "/orders/"+name, "", order{Amount: amount}, false)
		if a.good() {
			return nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// send sends it once.
func (c *client) send(ctx context.Context, x request) answer {
	return c.post(ctx, x.path(), x.key, payment{x.amount}, x.harm)
}

// burst sends it several times at once. The answers come as they do.
func (c *client) burst(ctx context.Context, x request, times int) <-chan answer {
	answers := make(chan answer, times)
	var wg sync.WaitGroup
	for range times {
		wg.Go(func() { answers <- c.send(ctx, x) })
	}
	go func() {
		wg.Wait()
		close(answers)
	}()
	return answers
}

// collect takes up to n answers, and returns when they are there, or ctx ends.
func collect(ctx context.Context, answers <-chan answer, n int) (all []answer) {
	for len(all) < n {
		select {
		case a, ok := <-answers:
			if !ok {
				return all
			}
			all = append(all, a)
		case <-ctx.Done():
			return all
		}
	}
	return all
}

// insist sends it until there is an answer that sending again will not change, for a while.
func (c *client) insist(ctx context.Context, x request) (all []answer) {
	for end := time.Now().Add(patience); ; {
		a := c.send(ctx, x)
		all = append(all, a)
		again := a.Status == 0 || a.Status >= 500 || a.Status == http.StatusConflict && a.Header.Get("Retry-After") != ""
		if !again || time.Now().After(end) || !sleep(ctx, 200*time.Millisecond) {
			return all
		}
	}
}

func (c *client) post(ctx context.Context, path, key string, body any, harm bool) answer {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err) // it has only strings and numbers
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(raw))
	if err != nil {
		panic(err) // it is well formed
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", fmt.Sprintf("%q", key))
	}
	if harm {
		req.Header.Set(harmHeader, "1")
	}
	begun := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{Took: time.Since(begun)}
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{Took: time.Since(begun)}
	}
	return answer{resp.StatusCode, resp.Header, all, time.Since(begun)}
}
