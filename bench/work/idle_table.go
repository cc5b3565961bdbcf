package work

import (
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/bench/measure"
)

// idle measures the longest time for which a slot was free while a process waited. The bound is that
// of a far waiter that finds itself at the front: a second, or more among more than 300.
func (s Setup) idle() []measure.Group {
	const kind = "idle slot"
	crowd := Crowd{Processes: 256, Limit: 10, Hold: time.Millisecond}
	scenes := []struct {
		name string
		Scene
	}{
		{"limit 10", Scene{Crowd: crowd}},
		{"limit 10, 5 permanent holders", Scene{Crowd: crowd, Permanent: 5}},
		{"limit 10, 9 permanent holders", Scene{Crowd: crowd, Permanent: 9}},
		{"limit 10, bursts of holds of 300 ms", Scene{Crowd: crowd, Bursts: true}},
		{"limit 10, four of five give up within 400 ms", Scene{Crowd: Crowd{Processes: 400, Limit: 10, Hold: 5 * time.Millisecond}, Impatient: 400 * time.Millisecond}},
		{"limit 10 raised by 1,000 before 2,000 callers", Scene{Crowd: Crowd{Processes: 200, Callers: 10, Limit: 10, Hold: time.Minute}, during: more(1000)}},
		{"limit 100, a session with 50 permits ends", Scene{Crowd: Crowd{Processes: 256, Limit: 100, Hold: 50 * time.Millisecond}, Permanent: 50, during: kill}},
		{"limit 50, 5 ms of work, 5 ms to etcd", Scene{Crowd: Crowd{Processes: 256, Limit: 50, Hold: 5 * time.Millisecond}, RTT: 5 * time.Millisecond}},
	}
	for i := range scenes {
		scenes[i].Least = scenes[i].bound() + time.Second
	}
	one := measure.Group{Name: kind, Rounds: 1, Cells: s.on(1, func(e *Env) (cells []measure.Cell) {
		for _, sc := range scenes {
			cells = append(cells, e.Scene(kind+": "+sc.name, sc.Scene))
		}
		return cells
	})}
	for _, sc := range scenes {
		one.Compare = append(one.Compare, bounded(kind, sc.name, sc.Scene, 0))
	}
	const stopped = "three members, one stopped for 2 s, and compaction"
	sc := Scene{Crowd: crowd, during: stopMember}
	sc.Least = sc.bound() + time.Second
	three := measure.Group{Name: kind + ", three members", Rounds: 1, Cells: s.on(3, func(e *Env) []measure.Cell {
		return []measure.Cell{e.Scene(kind+": "+stopped, sc)}
	}), Compare: []measure.Comparison{bounded(kind, stopped, sc, pause)}}
	return []measure.Group{one, three}
}

// bound is the longest time for which a waiting process that does not watch the whole queue sleeps.
func (sc Scene) bound() time.Duration {
	waiting := float64(sc.Processes * max(sc.Callers, 1))
	return time.Duration(max(1, waiting/300*waiting/300) * float64(time.Second))
}

// bounded compares the longest time of a scene with its bound, plus what the scene itself takes.
func bounded(kind, name string, sc Scene, also time.Duration) measure.Comparison {
	bound := sc.bound() + also
	return measure.Comparison{
		Work: kind + ", longest: " + name, Of: kind + ": " + name, Figure: ms(bound), Name: fmt.Sprintf("the bound, %.3g s", bound.Seconds()),
		Metric: measure.IdleLongest, Target: 1, AtMost: true,
	}
}
