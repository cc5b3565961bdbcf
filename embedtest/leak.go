package embedtest

import (
	"errors"
	"runtime"
	"strings"
	"time"
)

// leakPatience is how long goroutines may take to end by themselves: those of
// connections just closed need a moment.
const leakPatience = 3 * time.Second

// notLeaks mark goroutines that a test binary may well keep: signal handling
// and profiles once begun, what fuzzing runs, and streams of etcd's client that hang
// (see hangs).
var notLeaks = []string{
	"os/signal.",
	"runtime/pprof.",
	"runtime/trace.",
	"created by testing.",
	"internal/fuzz.",
	"watchGRPCStream).run.func1(", "watchGRPCStream).serveSubstream.func1(", "watchGRPCStream).serveWatchClient(", "watchGRPCStream).close(",
}

// findLeaks returns the stacks of goroutines that do not end, or nil.
func findLeaks() error {
	for end, pause := time.Now().Add(leakPatience), time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		left := otherGoroutines()
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("embedtest: goroutines left behind:\n" + strings.Join(left, "\n\n"))
		}
		time.Sleep(pause)
	}
}

// otherGoroutines returns the stacks of all goroutines but this one and those
// of the runtime, which runtime.Stack leaves out.
func otherGoroutines() []string {
	buf := make([]byte, 1<<20)
	for n := runtime.Stack(buf, true); ; n = runtime.Stack(buf, true) {
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	stacks := strings.Split(strings.TrimSpace(string(buf)), "\n\n")
	var left []string
next:
	for _, s := range stacks[1:] { // the first is the caller's
		for _, known := range notLeaks {
			if strings.Contains(s, known) {
				continue next
			}
		}
		left = append(left, s)
	}
	return left
}
