package embedtest

import (
	"errors"
	"runtime"
	"slices"
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

// findLeaks returns an error with the stacks of goroutines that do not end, or nil. Those
// in before and those whose stack contains one of ignore do not count.
func findLeaks(before map[string]string, ignore []string) error {
	for end, pause := time.Now().Add(leakPatience), time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		left := leaks(before, ignore)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("embedtest: goroutines left behind:\n" + strings.Join(left, "\n\n"))
		}
		time.Sleep(pause)
	}
}

func leaks(before map[string]string, ignore []string) (stacks []string) {
next:
	for id, stack := range goroutines() {
		if _, old := before[id]; old {
			continue
		}
		for _, known := range slices.Concat(notLeaks, ignore) {
			if strings.Contains(stack, known) {
				continue next
			}
		}
		stacks = append(stacks, stack)
	}
	return stacks
}

// goroutines returns the stacks of all goroutines by their numbers, which are not used
// again, but for this one and those of the runtime, which runtime.Stack leaves out.
func goroutines() map[string]string {
	buf := make([]byte, 1<<20)
	for n := runtime.Stack(buf, true); ; n = runtime.Stack(buf, true) {
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	stacks := make(map[string]string)
	for _, s := range strings.Split(strings.TrimSpace(string(buf)), "\n\n")[1:] { // the first is the caller's
		stacks[strings.Fields(s)[1]] = s // "goroutine 7 [select]:"
	}
	return stacks
}
