package embedtest

import (
	"maps"
	"strings"
	"sync"
)

// counts are the requests and the open streams of one client.
type counts struct {
	mu       sync.Mutex
	requests map[string]int
	streams  map[string]int
}

func newCounts() *counts {
	return &counts{requests: make(map[string]int), streams: make(map[string]int)}
}

// Requests returns the number of requests that the client has sent since it was created or
// since ResetRequests, retries included, by name:
//
//   - "Txn", "Range", "LeaseGrant" and other methods: unary calls
//   - "Watch", "LeaseKeepAlive": opened streams
//   - "Watch.Send": created watches
//   - "Watch.Cancel", "Watch.Progress": the other messages on a Watch stream
//   - "LeaseKeepAlive.Send": renewals
//
// A request that a Fault holds is counted when it is sent.
func (cl *Client) Requests() map[string]int {
	cl.counts.mu.Lock()
	defer cl.counts.mu.Unlock()
	return maps.Clone(cl.counts.requests)
}

// ResetRequests sets all counts of Requests to zero. OpenStreams is not affected.
func (cl *Client) ResetRequests() {
	cl.counts.mu.Lock()
	defer cl.counts.mu.Unlock()
	clear(cl.counts.requests)
}

// OpenStreams returns the number of open streams by the name of their method. Methods
// without an open stream have no entry.
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

// shortName returns "Txn" for "/etcdserverpb.KV/Txn".
func shortName(fullMethod string) string {
	return fullMethod[strings.LastIndexByte(fullMethod, '/')+1:]
}
