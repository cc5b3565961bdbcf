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

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// client is the customer: it sends requests to the proxy.
type client struct {
	url  string
	http *http.Client
}

// newClient returns a client without kept connections: if one breaks, net/http retries requests
// with an Idempotency-Key by itself.
func newClient(url string) *client {
	return &client{url, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// request is one payment, which may be sent many times.
type request struct {
	way        string
	order      string
	key        string
	amount     int
	storeFails bool // the store fails after the charge
}

// path returns the path of the request.
func (x request) path() string { return "/pay/" + x.way + "/" + x.order }

// answer is a response.
type answer struct {
	Status int // 0 if there was none
	Header http.Header
	Body   []byte
	Took   time.Duration
}

// good reports whether the payment was made.
func (a answer) good() bool { return a.Status >= 200 && a.Status < 300 }

// code returns the middleware's code, if the response is a problem.
func (a answer) code() string {
	var problem struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(a.Body, &problem) != nil {
		return ""
	}
	return problem.Code
}

// create creates an order.
func (c *client) create(ctx context.Context, name string, amount int) error {
	for { // the proxy may choose a dead server
		a := c.post(ctx, "/orders/"+name, "", order{Amount: amount}, false)
		if a.good() {
			return nil
		}
		if program.Sleep(ctx, 50*time.Millisecond) != nil {
			return context.Cause(ctx)
		}
	}
}

// send sends the request once.
func (c *client) send(ctx context.Context, x request) answer {
	return c.post(ctx, x.path(), x.key, payment{x.amount}, x.storeFails)
}

// burst sends the request several times at once. The answers are in the order of their arrival.
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

// collect returns n answers; fewer if there are no more, or ctx ends.
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

// insist repeats the request until its answer is final, or a time has passed.
func (c *client) insist(ctx context.Context, x request) (all []answer) {
	for end := time.Now().Add(patience); ; {
		a := c.send(ctx, x)
		all = append(all, a)
		again := a.Status == 0 || a.Status >= 500 || a.Status == http.StatusConflict && a.Header.Get("Retry-After") != ""
		if !again || time.Now().After(end) || program.Sleep(ctx, 200*time.Millisecond) != nil {
			return all
		}
	}
}

func (c *client) post(ctx context.Context, path, key string, body any, storeFails bool) answer {
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
	if storeFails {
		req.Header.Set(failStoreHeader, "1")
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
