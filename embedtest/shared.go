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

// Shared returns a cluster of one member that all tests of the test binary share. The
// first call starts it, and Main or Run stops it: the TestMain of the binary must use one
// of them. Give each test a Prefix of its own, inject faults into a client of NewClient,
// and use Start for tests that break a server. An error fails tb.
func Shared(tb TB) *Cluster {
	tb.Helper()
	if externalEndpoints() != nil {
		return Start(tb, nil) // the same cluster, with a tb that it can skip
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

// Main is the body of a TestMain: it exits with the code of [Run].
//
//	func TestMain(m *testing.M) { embedtest.Main(m) }
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run runs the tests of m, a *testing.M, stops the shared member and returns the exit code
// for os.Exit. If a test failed, Run writes the log of the shared member to standard error.
//
// If all tests passed, Run also checks for leaked goroutines: if a goroutine that started
// after the call of Run does not end within three seconds, Run writes its stack to standard
// error and returns 1. A goroutine is not a leak if its stack contains one of ignore, for
// example "glog.(*fileSink).flushDaemon". Call Run once.
//
// Use Run if TestMain has something else to stop:
//
//	func TestMain(m *testing.M) {
//		stop := startDatabase()
//		code := embedtest.Run(m)
//		stop()
//		os.Exit(code)
//	}
//
// and with goleak.VerifyTestMain, whose options do not apply to the check of Run:
//
//	type tests struct{ *testing.M }
//
//	func (t tests) Run() int { return embedtest.Run(t.M, "flushDaemon") }
//
//	func TestMain(m *testing.M) {
//		goleak.VerifyTestMain(tests{m}, goleak.IgnoreAnyFunction("…flushDaemon"))
//	}
func Run(m interface{ Run() int }, ignore ...string) int {
	before := goroutines()
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
	if code == 0 && !unstoppable.Load() { // after a failed test, leaked goroutines are expected
		if err := findLeaks(before, ignore); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// takeShared returns the shared member, or nil, and clears it.
func takeShared() *Cluster {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	c := shared.c
	shared.c = nil
	return c
}
