package work

import (
	"fmt"
	"strings"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/servers"
	"github.com/etcdkit/etcdkit/idempotency"
)

// replay is a table of its own, measured beside the new requests.
const replay = "replay from the cache"

// newRequests is new idempotent requests, beside Redis and what etcd's client does without etcdkit.
func (s Setup) newRequests(inFlight int) measure.Group {
	kind := fmt.Sprintf("new idempotent requests, %d in flight", inFlight)
	g := measure.Group{Name: kind, Cells: s.on(1, func(e *Env) []measure.Cell {
		cells := []measure.Cell{
			e.Requests(kind+": ours", inFlight),
			e.Requests(kind+": ours, LikelyNew", inFlight, idempotency.LikelyNew()),
			e.FloorRequests(kind+": floor", inFlight),
			e.RedisRequests(kind+": Redis always", servers.Always, inFlight),
		}
		if inFlight > 1 {
			cells = append(cells,
				e.BareRequests(kind+": claim + complete", inFlight),
				e.RedisRequests(kind+": Redis everysec", servers.Everysec, inFlight),
				e.Replay(replay+": ours"))
		}
		return cells
	})}
	if inFlight > 1 {
		g.Compare = append(rates(kind), costs(kind, 1.6)...)
		g.Compare = append(g.Compare, formerFigures(kind)...)
	} else {
		g.Compare = append(latencies(kind), costs(kind, 0)...)
	}
	return g
}

// rates compares requests per second.
func rates(kind string) []measure.Comparison {
	ours, likely, always := kind+": ours", kind+": ours, LikelyNew", kind+": Redis always"
	return []measure.Comparison{
		{Work: kind, Of: ours, Against: kind + ": claim + complete", Name: "claim + complete", Metric: measure.Rate, Target: 2},
		{Work: kind, Of: ours, Against: always, Name: "Redis, fsync always", Metric: measure.Rate, Target: 0.5},
		{Work: kind, Of: ours, Against: kind + ": Redis everysec", Name: "Redis, fsync everysec", Metric: measure.Rate},
		{Work: kind + ", LikelyNew", Of: likely, Against: always, Name: "Redis, fsync always", Metric: measure.Rate, Target: 0.5},
		{Work: kind + ", LikelyNew", Of: likely, Against: kind + ": floor", Name: "floor", Metric: measure.Rate},
	}
}

// latencies compares the time of one request.
func latencies(kind string) []measure.Comparison {
	likely := kind + ": ours, LikelyNew"
	return []measure.Comparison{
		{Work: kind + ", time", Of: kind + ": ours", Against: kind + ": floor", Name: "floor", Metric: measure.WaitMedian},
		{Work: kind + ", LikelyNew, time", Of: likely, Against: kind + ": floor", Name: "floor", Metric: measure.WaitMedian},
		{Work: kind + ", LikelyNew, time", Of: likely, Against: kind + ": Redis always", Name: "Redis, fsync always", Metric: measure.WaitMedian},
	}
}

// costs compares the processor time of a request with that of the floor. Client and server share the machine, so their
// sum decides what it can do, and has the target.
func costs(kind string, most float64) (all []measure.Comparison) {
	for _, part := range []struct {
		of     string
		metric measure.Metric
		target float64
	}{
		{"client's and server's", measure.BothCPU, most},
		{"client's", measure.ClientCPU, 0},
		{"server's", measure.ServerCPU, 0},
	} {
		all = append(all, measure.Comparison{
			Work: fmt.Sprintf("%s processor time for each, %s, LikelyNew", part.of, strings.TrimPrefix(kind, "new idempotent requests, ")), Of: kind + ": ours, LikelyNew", Against: kind + ": floor", Name: "floor",
			Metric: part.metric, Target: part.target, AtMost: true,
		})
	}
	return all
}

// formerFigures compares with figures of former builds, from other runs.
func formerFigures(kind string) []measure.Comparison {
	return []measure.Comparison{
		{Work: "server's processor time for each of them", Of: kind + ": ours", Figure: 60, Name: "60 µs", Metric: measure.ServerCPU, Target: 1, AtMost: true},
		{Work: replay + ", allocations", Of: replay + ": ours", Figure: 27, Name: "27, before", Metric: measure.Allocs, Target: 0.5, AtMost: true},
		{Work: replay + ", time", Of: replay + ": ours", Figure: 5.7, Name: "5.7 µs, before", Metric: measure.EachTime, Target: 0.5, AtMost: true},
	}
}

// inProgress is the memory of attempts that have begun and not ended. It does not depend on the machine's load, so one
// round shows it.
func (s Setup) inProgress() measure.Group {
	const kind, attempts = "10,000 attempts in progress, each", 10_000
	return measure.Group{Name: kind, Rounds: 1, Cells: s.on(1, func(e *Env) []measure.Cell {
		return []measure.Cell{e.Attempts(kind+": ours", attempts)}
	}), Compare: []measure.Comparison{
		{Work: kind + ", heap", Of: kind + ": ours", Figure: formerHeap, Name: fmt.Sprintf("%d bytes, with two keys", formerHeap), Metric: measure.Heap, Target: 0.5, AtMost: true},
	}}
}

// formerHeap is what an attempt took when its request had two keys, in bytes, by this cell.
const formerHeap = 4020
