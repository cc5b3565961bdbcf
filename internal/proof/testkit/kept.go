package testkit

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
)

// module is how the names of this module's functions begin.
const module = "github.com/etcdkit/etcdkit/"

// sampling is the mean distance in bytes between two allocations that Kept looks at.
const sampling = 512

// Kept calls fn and returns how many bytes are still reachable of those that were allocated
// meanwhile below a function of this module, and where most of them were; without the runtime's tables. It samples, so
// the result is an estimate: it is off by a few KiB. What an etcd in this process allocates
// does not count. A test that calls it must not be parallel to others.
func Kept(fn func()) (bytes int64, where string) {
	rate := runtime.MemProfileRate
	defer func() { runtime.MemProfileRate = rate }()
	runtime.MemProfileRate = sampling
	before := sampled()
	fn()
	runtime.MemProfileRate = 0
	var lines []string
	after := sampled()
	for _, stack := range slices.SortedFunc(maps.Keys(after), func(a, b string) int {
		return cmp.Compare(after[b]-before[b], after[a]-before[a])
	}) {
		n := after[stack] - before[stack]
		bytes += n
		if len(lines) < 3 && n > 0 {
			lines = append(lines, fmt.Sprintf("%d bytes:%s", n, stack))
		}
	}
	return bytes, strings.Join(lines, "\n")
}

// sampled estimates the bytes that are still reachable, by the functions that led to them.
func sampled() map[string]int64 {
	for range 3 { // a profile is complete two collections later
		runtime.GC()
	}
	var all []runtime.MemProfileRecord
	for n, ok := 0, false; !ok; {
		all = make([]runtime.MemProfileRecord, n+100)
		n, ok = runtime.MemProfile(all, false)
		all = all[:min(n, len(all))]
	}
	found := map[string]int64{}
	for _, r := range all {
		var stack strings.Builder
		frames, ours, table := runtime.CallersFrames(r.Stack()), false, false
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			// An interceptor of embedtest is below each call that the server serves.
			ours = ours || strings.HasPrefix(f.Function, module) && !strings.Contains(f.Function, "/testkit.") && !strings.Contains(f.Function, "/embedtest.")
			table = table || f.Function == "runtime.itabAdd" // the runtime's own, which grows once, by 72 KiB
			fmt.Fprintf(&stack, "\n\t%s %d", f.Function, f.Line)
		}
		if ours && !table {
			found[stack.String()] += max(r.InUseBytes(), r.InUseObjects()*sampling)
		}
	}
	return found
}

// Started returns how many goroutines this process has ever started.
func Started() uint64 {
	s := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
