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
// start an own cluster for what breaks a server. Main and Run stop it; a test
// binary that uses Shared needs one of them in its TestMain. Errors fail tb.
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

// Main is the body of TestMain: it exits with the code of [Run].
//
//	func TestMain(m *testing.M) { embedtest.Main(m) }
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run runs the tests of m, a *testing.M, stops the shared member, shows its log if a test
// failed, and returns the exit code for os.Exit. If all tests passed and goroutines begun
// since the call of Run do not end within three seconds, it writes their stacks to
// standard error and returns 1. Goroutines are no leak if they ran before, or if their
// stack contains one of ignore, such as "glog.(*fileSink).flushDaemon". Call it once.
//
// Use Run where TestMain has something to stop itself:
//
//	func TestMain(m *testing.M) {
//		stop := startDatabase()
//		code := embedtest.Run(m)
//		stop()
//		os.Exit(code)
//	}
//
// and with goleak.VerifyTestMain, whose options do not apply to Run:
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
	if code == 0 && !left.Load() { // goroutines of a failed test are no news
		if err := findLeaks(before, ignore); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// takeShared returns the shared member, or nil, and forgets it.
func takeShared() *Cluster {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	c := shared.c
	shared.c = nil
	return c
}
