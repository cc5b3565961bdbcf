package embedtest

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"time"
)

// leakWait is how long goroutines may take to end, for example those of connections that were
// just closed.
const leakWait = 3 * time.Second

// notLeaks are functions in the stacks of goroutines that do not count as leaked: signal
// handling, profiles, fuzzing, and hanging streams of etcd's client (see closeTimeout).
var notLeaks = []string{
	"os/signal.",
	"runtime/pprof.",
	"runtime/trace.",
	"created by testing.",
	"internal/fuzz.",
	"watchGRPCStream).run.func1(", "watchGRPCStream).serveSubstream.func1(", "watchGRPCStream).serveWatchClient(", "watchGRPCStream).close(",
}

// findLeaks returns an error with the stacks of the goroutines that have not ended after
// leakWait, or nil. Goroutines in before, and those whose stack contains one of ignore, do
// not count.
func findLeaks(before map[string]string, ignore []string) error {
	for end, pause := time.Now().Add(leakWait), time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
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

// goroutines returns the stacks of all goroutines by their IDs, which the runtime does not
// reuse. The calling goroutine and those of the runtime itself are left out.
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
	for _, s := range strings.Split(strings.TrimSpace(string(buf)), "\n\n")[1:] { // the first is the calling goroutine
		stacks[strings.Fields(s)[1]] = s // "goroutine 7 [select]:"
	}
	return stacks
}
