#!/usr/bin/env bash
# Guess: http.Transport repeats a GET at most once, if the server closes a kept connection without an answer; so a limiter in
#   front of it counts what the server gets, give or take one.
# Really: it repeats it for as long as it finds another kept connection: with 20 of them one call of RoundTrip is 21 requests
#   at the server. The last one has a new connection, and is the only one whose failure the caller gets. A POST is sent once;
#   with an Idempotency-Key header it is repeated like a GET.
# Version: Go 1.26.8, net/http (HTTP/1.1).
# Source: net/http/transport.go: RoundTrip loops while pconn.shouldRetryRequest(req, err); "if !pc.isReused() { return false }".
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
cat > go.mod <<'M'
module probe
go 1.26
M
cat > main.go <<'G'
package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
)

const kept = 20

// arrivals returns how many requests a server gets for one call, when it closes the connections of all of them.
func arrivals(method string, header http.Header) int32 {
	var closing atomic.Bool
	var got atomic.Int32
	var open sync.WaitGroup
	open.Add(kept)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if closing.Load() {
			got.Add(1)
			panic(http.ErrAbortHandler)
		}
		open.Done()
		open.Wait() // so each has a connection of its own
	}))
	defer server.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: kept}
	var first sync.WaitGroup
	for range kept {
		first.Go(func() {
			req, _ := http.NewRequest("GET", server.URL, nil)
			resp, err := transport.RoundTrip(req)
			if err != nil {
				panic(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		})
	}
	first.Wait()
	closing.Store(true)
	body := io.Reader(nil)
	if method == "POST" {
		body = strings.NewReader("x")
	}
	req, _ := http.NewRequest(method, server.URL, body)
	for name, values := range header {
		req.Header[name] = values
	}
	if _, err := transport.RoundTrip(req); err == nil {
		panic("it was answered")
	}
	return got.Load()
}

func main() {
	get, post, keyed := arrivals("GET", nil), arrivals("POST", nil), arrivals("POST", http.Header{"Idempotency-Key": {"k"}})
	fmt.Printf("requests at the server for one call, with %d kept connections: GET %d, POST %d, POST with Idempotency-Key %d\n", kept, get, post, keyed)
	if get != kept+1 || post != 1 || keyed != kept+1 {
		os.Exit(1)
	}
}
G
GOTOOLCHAIN=local go run .
