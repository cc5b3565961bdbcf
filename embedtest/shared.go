package embedtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

var shared struct {
	mu sync.Mutex
	c  *Cluster
}

// Shared returns the one member that all tests of a test binary share, started
// on first use. Give each test a Prefix, use clients of its own for faults, and
// start an own cluster for what breaks a server. Main stops it; a test binary
// that uses Shared needs Main as its TestMain. Errors fail tb.
func Shared(tb TB) *Cluster {
	tb.Helper()
	if externalEndpoints() != nil {
		return Start(tb, nil) // a view of the same cluster that can skip this test
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.c == nil {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		c, err := New(ctx, nil)
		if err != nil {
			tb.Fatalf("%v", err)
			return nil
		}
		shared.c = c
	}
	return shared.c
}

// Main is the body of TestMain: it runs the tests, stops the shared member,
// shows its log if a test failed, fails when goroutines are left behind, and
// exits.
//
//	func TestMain(m *testing.M) { embedtest.Main(m) }
func Main(m *testing.M) {
	code := m.Run()
	c := takeShared()
	if c != nil {
		if err := c.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		if code != 0 && c.logBuf != nil {
			fmt.Fprintf(os.Stderr, "embedtest: log of the shared etcd:\n%s", c.logBuf)
		}
	}
	if code == 0 && !left.Load() { // goroutines of a failed test are no news
		if err := findLeaks(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// takeShared returns the shared member, or nil, and forgets it.
func takeShared() *Cluster {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	c := shared.c
	shared.c = nil
	return c
}
