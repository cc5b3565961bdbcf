package work

import (
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/servers"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// The plots that the sweeps are drawn in.
const (
	PlotWaiting   = "waiting"   // processes that wait at limit 1
	PlotWaiting3  = "waiting-3" // the same with three members
	PlotLimit     = "limit"     // 256 processes at other limits
	PlotHold      = "hold"      // the length of the work
	PlotRequests  = "requests"  // idempotent requests in flight
	PlotProcesses = "processes" // real processes
)

const (
	limitSweep   = "limit, 256 processes, 5 ms of work"
	requestSweep = "idempotent requests in flight"
)

// Undrawn are the sweeps of which no plot shows all: the limit, and the processor time of requests.
var Undrawn = []string{limitSweep, requestSweep}

// Scale returns the groups of `make bench-scale`.
func Scale(s Setup) []measure.Group {
	return []measure.Group{
		s.manyWaiting(1), s.manyWaiting(3), s.limits(), s.holds(), s.inFlight(), s.processes(),
	}
}

// at gives a cell its place in a plot.
func at(plot, series string, x float64, c measure.Cell) measure.Cell {
	c.Points = []measure.Point{{Plot: plot, Series: series, X: x}}
	return c
}

// manyWaiting sweeps the processes that wait for the only permit.
func (s Setup) manyWaiting(members int) measure.Group {
	kind, plot, steps := "waiting processes, limit 1, one member", PlotWaiting, []int{8, 16, 32, 64, 128, 256, 512}
	if members > 1 {
		kind, plot, steps = "waiting processes, limit 1, three members", PlotWaiting3, []int{8, 64, 512}
	}
	return measure.Group{Name: kind, Cells: s.on(members, func(e *Env) (cells []measure.Cell) {
		for _, n := range steps {
			for _, l := range []Lock{Mutex(), EtcdMutex()} {
				cells = append(cells, at(plot, l.Name, float64(n), e.Cell(fmt.Sprintf("%s: %s, %d", kind, l.Name, n), l, Crowd{Processes: n, Limit: 1})))
			}
		}
		return cells
	})}
}

// limits sweeps the limit, with as much work as keeps the holders' part of all processes the same.
func (s Setup) limits() measure.Group {
	const kind = limitSweep
	return measure.Group{Name: kind, Cells: s.on(1, func(e *Env) (cells []measure.Cell) {
		for _, limit := range []int{1, 10, 50, 100} {
			for _, l := range []Lock{Ours("ours", nil), Ideal()} {
				w := Crowd{Processes: 256, Limit: limit, Hold: 5 * time.Millisecond}
				cells = append(cells, at(PlotLimit, l.Name, float64(limit), e.Cell(fmt.Sprintf("%s: %s, limit %d", kind, l.Name, limit), l, w)))
			}
		}
		return cells
	})}
}

// holds sweeps the length of the work under a limit of 1, which Redis's locks have as well.
func (s Setup) holds() measure.Group {
	const kind = "work, limit 1, 8 processes with 4 callers each"
	locks := append(modes(), Redislock(servers.Everysec), Redislock(servers.Always), Ideal())
	return measure.Group{Name: kind, Cells: s.on(1, func(e *Env) (cells []measure.Cell) {
		for _, hold := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
			for _, l := range locks {
				w := Crowd{Processes: 8, Callers: 4, Limit: 1, Hold: hold}
				cells = append(cells, at(PlotHold, l.Name, ms(hold), e.Cell(fmt.Sprintf("%s: %s, %v", kind, l.Name, hold), l, w)))
			}
		}
		return cells
	})}
}

// handover is how long permits pass between the callers of one process.
const handover = 20 * time.Millisecond

// modes are our semaphore by its options.
func modes() []Lock {
	return []Lock{Ours("ours", nil), Ours("ours, Handover", &concurrency.SemaphoreOptions{Handover: handover})}
}

// inFlight sweeps idempotent requests.
func (s Setup) inFlight() measure.Group {
	const kind = requestSweep
	return measure.Group{Name: kind, Cells: s.on(1, func(e *Env) (cells []measure.Cell) {
		for _, n := range []int{1, 8, 64, 512} {
			id := func(series string) string { return fmt.Sprintf("%s: %s, %d", kind, series, n) }
			x := float64(n)
			cells = append(cells,
				at(PlotRequests, "ours", x, e.Requests(id("ours"), n)),
				at(PlotRequests, "ours, LikelyNew", x, e.Requests(id("ours, LikelyNew"), n, idempotency.LikelyNew())),
				at(PlotRequests, "floor", x, e.FloorRequests(id("floor"), n)),
				at(PlotRequests, "claim + complete", x, e.BareRequests(id("claim + complete"), n)),
				at(PlotRequests, "Redis always", x, e.RedisRequests(id("Redis always"), servers.Always, n)),
				at(PlotRequests, "Redis everysec", x, e.RedisRequests(id("Redis everysec"), servers.Everysec, n)))
		}
		return cells
	})}
}

// processes sweeps real processes.
func (s Setup) processes() measure.Group {
	const kind = "real processes, limit 1"
	return measure.Group{Name: kind, Cells: s.on(1, func(e *Env) (cells []measure.Cell) {
		for _, n := range []int{8, 16, 32, 64} {
			for _, l := range []Lock{Mutex(), EtcdMutex()} {
				cells = append(cells, at(PlotProcesses, l.Name, float64(n), e.Workers(fmt.Sprintf("%s: %s, %d", kind, l.Name, n), s.Dir, l, Crowd{Processes: n, Limit: 1})))
			}
		}
		return cells
	})}
}
