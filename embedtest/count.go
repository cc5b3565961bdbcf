package embedtest

import (
	"maps"
	"strings"
	"sync"
)

// counts is what one client has sent.
type counts struct {
	mu       sync.Mutex
	requests map[string]int
	streams  map[string]int
}

func newCounts() *counts {
	return &counts{requests: make(map[string]int), streams: make(map[string]int)}
}

// Requests returns what the client has sent since it was made or since
// ResetRequests, retries included: unary calls and opened streams by the short
// name of their method ("Txn", "Range", "LeaseGrant", "Watch",
// "LeaseKeepAlive"), messages on streams as "LeaseKeepAlive.Send" and
// "Watch.Send", which counts created watches; their ends are "Watch.Cancel".
// A call that a Fault keeps back is not counted before it is sent.
func (cl *Client) Requests() map[string]int {
	cl.counts.mu.Lock()
	defer cl.counts.mu.Unlock()
	return maps.Clone(cl.counts.requests)
}

// ResetRequests starts Requests from zero; open streams are not forgotten.
func (cl *Client) ResetRequests() {
	cl.counts.mu.Lock()
	defer cl.counts.mu.Unlock()
	clear(cl.counts.requests)
}

// OpenStreams returns the number of streams that are open now, by the short
// name of their method; methods without one are missing.
func (cl *Client) OpenStreams() map[string]int {
	cl.counts.mu.Lock()
	defer cl.counts.mu.Unlock()
	return maps.Clone(cl.counts.streams)
}

func (c *counts) add(name string) {
	c.mu.Lock()
	c.requests[name]++
	c.mu.Unlock()
}

func (c *counts) opened(method string) {
	c.mu.Lock()
	c.streams[method]++
	c.mu.Unlock()
}

func (c *counts) ended(method string) {
	c.mu.Lock()
	if c.streams[method]--; c.streams[method] == 0 {
		delete(c.streams, method)
	}
	c.mu.Unlock()
}

// shortName turns "/etcdserverpb.KV/Txn" into "Txn".
func shortName(fullMethod string) string {
	return fullMethod[strings.LastIndexByte(fullMethod, '/')+1:]
}
