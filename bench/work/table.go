package work

import (
	"context"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/servers"
	"github.com/etcdkit/etcdkit/concurrency"
)

// Setup is what all groups share.
type Setup struct {
	Dir   string         // for the data of servers
	For   time.Duration  // how long each cell is measured
	Redis *servers.Redis // for the whole run

	dry bool // the cells are not run, so they need no servers
}

// on returns the Cells of a group on an etcd of its own.
func (s Setup) on(members int, cells func(*Env) []measure.Cell) func(context.Context) ([]measure.Cell, func(), error) {
	return func(ctx context.Context) ([]measure.Cell, func(), error) {
		if s.dry {
			return cells(&Env{For: s.For}), func() {}, nil
		}
		etcd, err := servers.StartEtcd(ctx, s.Dir, members)
		if err != nil {
			return nil, nil, err
		}
		return cells(&Env{Etcd: etcd, Redis: s.Redis, For: s.For}), etcd.Close, nil
	}
}

// Table returns the groups of `make bench`.
func Table(s Setup) []measure.Group {
	groups := []measure.Group{
		s.waiting(1, "waiting, limit 1", []int{8, 64, 256, 512}),
		s.waiting(10, "waiting, limit 10", []int{64, 256, 512}),
		s.large(),
		s.passes(),
		s.short(),
		s.alone(),
		s.shared(),
		s.bounded(),
		s.newRequests(1),
		s.newRequests(512),
		s.inProgress(),
	}
	return append(groups, s.idle()...)
}

// grown is up to where a cost per grant counts as the same: less than what two runs differ by.
const grown = 1.25

// waiting compares more and more waiting processes with the fewest, and with etcd's Mutex.
func (s Setup) waiting(limit int, kind string, processes []int) measure.Group {
	id := func(who string, n int) string { return fmt.Sprintf("%s: %s, %d processes", kind, who, n) }
	g := measure.Group{Name: kind, Cells: s.on(1, func(e *Env) (cells []measure.Cell) {
		for _, n := range processes {
			if limit == 1 {
				cells = append(cells, e.Cell(id("ours", n), Mutex(), Crowd{Processes: n, Limit: 1}),
					e.Cell(id("etcd Mutex", n), EtcdMutex(), Crowd{Processes: n, Limit: 1}))
			} else {
				cells = append(cells, e.Cell(id("ours", n), Ours("ours", nil), Crowd{Processes: n, Limit: limit}))
			}
		}
		return cells
	})}
	least := processes[0]
	for _, n := range processes[1:] {
		work := fmt.Sprintf("%d waiting processes, limit %d", n, limit)
		if limit == 1 {
			g.Compare = append(g.Compare, measure.Comparison{Work: work, Of: id("ours", n), Against: id("etcd Mutex", n), Name: "etcd Mutex", Metric: measure.Rate, Target: 1})
		}
		g.Compare = append(g.Compare, measure.Comparison{Work: work, Of: id("ours", n), Against: id("ours", least), Name: fmt.Sprintf("itself at %d", least), Metric: measure.Rate, Target: 1.0 / 3})
	}
	most := processes[len(processes)-1]
	for _, c := range []struct {
		what   string
		metric measure.Metric
	}{{"events per grant", measure.Events}, {"reads per grant", measure.Reads}, {"server's processor time per grant", measure.ServerCPU}} {
		g.Compare = append(g.Compare, measure.Comparison{Work: fmt.Sprintf("%s, %d waiting processes, limit %d", c.what, most, limit), Of: id("ours", most), Against: id("ours", least), Name: fmt.Sprintf("itself at %d", least), Metric: c.metric, Target: grown, AtMost: true})
	}
	return g
}

// large is a large limit among many processes with long work.
func (s Setup) large() measure.Group {
	const kind = "limit 100, 50 ms of work, 256 processes"
	w := Crowd{Processes: 256, Limit: 100, Hold: 50 * time.Millisecond}
	return measure.Group{Name: kind, Cells: s.on(1, func(e *Env) []measure.Cell {
		return []measure.Cell{e.Cell(kind+": ours", Ours("ours", nil), w), e.Cell(kind+": x/sync", Ideal(), w)}
	}), Compare: []measure.Comparison{{Work: kind, Of: kind + ": ours", Against: kind + ": x/sync", Name: "x/sync (the ideal)", Metric: measure.Rate, Target: 0.35}}}
}

// short is short work under a mutex.
func (s Setup) short() measure.Group {
	const kind = "limit 1, 1 ms of work, 8 processes"
	w := Crowd{Processes: 8, Limit: 1, Hold: time.Millisecond}
	locks := []Lock{Mutex(), EtcdMutex(), Redislock(servers.Everysec), Redislock(servers.Always), Redsync(servers.Everysec), Redsync(servers.Always), Ideal()}
	g := measure.Group{Name: kind, Cells: s.on(1, func(e *Env) (cells []measure.Cell) {
		for _, l := range locks {
			cells = append(cells, e.Cell(kind+": "+l.Name, l, w))
		}
		return cells
	})}
	for _, l := range locks[1:] {
		c := measure.Comparison{Work: kind, Of: kind + ": ours", Against: kind + ": " + l.Name, Name: l.Name, Metric: measure.Rate}
		switch l.Name {
		case "etcd Mutex":
			c.Target = 6
		case Redislock(servers.Always).Name:
			c.Target = 1
		}
		g.Compare = append(g.Compare, c)
	}
	return g
}

// alone is one caller on a free semaphore.
func (s Setup) alone() measure.Group {
	const kind = "acquire and release a free permit"
	id := func(l Lock) string { return kind + ": " + l.Name }
	pair := []Lock{Ours("ours", nil), Bare()}
	redis := []Lock{Redislock(servers.Everysec), Redislock(servers.Always), Redsync(servers.Everysec), Redsync(servers.Always)}
	kept := Ours("ours, Keep", &concurrency.SemaphoreOptions{Keep: time.Minute})
	g := measure.Group{Name: kind, Cells: s.on(1, func(e *Env) []measure.Cell {
		cells := []measure.Cell{e.InTurn([]string{id(pair[0]), id(pair[1])}, pair)}
		for _, l := range redis {
			cells = append(cells, e.InTurn([]string{id(l)}, []Lock{l}))
		}
		return append(cells, e.Repeated(id(kept), kept))
	}), Compare: []measure.Comparison{{Work: kind + ", time", Of: id(pair[0]), Against: id(pair[1]), Name: pair[1].Name, Metric: measure.EachTime, Target: 1.12, AtMost: true}}}
	for _, l := range redis {
		g.Compare = append(g.Compare, measure.Comparison{Work: kind + ", time", Of: id(pair[0]), Against: id(l), Name: l.Name, Metric: measure.EachTime})
	}
	g.Compare = append(g.Compare, measure.Comparison{
		Work: "acquire and release a kept permit (Keep), speed", Of: id(kept), Against: id(redis[0]), Name: redis[0].Name,
		Metric: measure.EachTime, Inverse: true, Target: 1000,
	})
	return g
}

// shared is many callers in few processes, with short work.
func (s Setup) shared() measure.Group {
	const kind = "limit 10, 1 ms of work, 8 processes, 128 callers"
	w := Crowd{Processes: 8, Callers: 16, Limit: 10, Hold: time.Millisecond}
	locks := append(modes(), Ideal())
	return measure.Group{Name: kind, Cells: s.on(1, func(e *Env) (cells []measure.Cell) {
		for _, l := range locks {
			cells = append(cells, e.Cell(kind+": "+l.Name, l, w))
		}
		return cells
	}), Compare: []measure.Comparison{
		{Work: kind, Of: kind + ": ours", Against: kind + ": x/sync", Name: "x/sync (the ideal)", Metric: measure.Rate, Target: 0.55},
		{Work: kind + ", Handover 20 ms", Of: kind + ": ours, Handover", Against: kind + ": x/sync", Name: "x/sync (the ideal)", Metric: measure.Rate, Target: 0.85},
		{Work: kind + ", Handover 20 ms, longest wait : mean wait", Of: kind + ": ours, Handover", Against: kind + ": ours", Name: "itself without", Metric: measure.Unfair},
	}}
}

// passes is how a lock gets from one process to the next.
func (s Setup) passes() measure.Group {
	const kind = "hand-over, limit 1, 8 processes"
	return measure.Group{Name: kind, Cells: s.on(1, func(e *Env) []measure.Cell {
		return []measure.Cell{e.Cell(kind+": ours", Mutex(), Crowd{Processes: 8, Limit: 1}), e.Deletion(kind + ": delete + event")}
	}), Compare: []measure.Comparison{
		{Work: kind + ", median", Of: kind + ": ours", Against: kind + ": delete + event", Name: "delete + event", Metric: measure.PassMedian, Target: 1.4, AtMost: true},
	}}
}

// bounded is callers that do not join a long queue.
func (s Setup) bounded() measure.Group {
	const kind, hold = "limit 7, 5 ms of work, 3 processes, 30 callers", 5 * time.Millisecond
	w := Crowd{Processes: 3, Callers: 10, Limit: 7, Hold: hold}
	return measure.Group{Name: kind, Cells: s.on(1, func(e *Env) []measure.Cell {
		return []measure.Cell{e.Cell(kind+": ours", Ours("ours", nil), w), e.Cell(kind+": ours, MaxWaiters(5)", Bounded("ours, MaxWaiters(5)", 5, hold), w)}
	}), Compare: []measure.Comparison{
		{Work: kind + ", MaxWaiters(5)", Of: kind + ": ours, MaxWaiters(5)", Against: kind + ": ours", Name: "itself without", Metric: measure.Rate, Target: 0.9},
	}}
}
