package exporter

import (
	"cmp"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
)

// subject is one queue, job or store, as far as it decides which are published.
type subject struct {
	kind, name    string
	first, second int64 // those with the lowest values come first
	samples       func(d descs, now int64) []sample
}

// firstOf sorts subjects in the order in which they are published.
func firstOf(all []subject) []subject {
	slices.SortFunc(all, func(a, b subject) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.second, b.second), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	return all
}

// never sorts a queue in which no request waits, or holds, behind the others.
const never = 1 << 62

func queueSubjects(s *fleet.State) (out []subject) {
	add := func(kind, name string, n fleet.Summary, samples func(d descs, now int64) []sample) {
		out = append(out, subject{kind, name, cmp.Or(n.OldestWait, never), cmp.Or(n.OldestHold, never), samples})
	}
	for id, l := range s.Queues {
		kind := id.Label()
		add(kind, id.Name, l.Now, func(d descs, now int64) []sample { return samplesOfQueue(l, d, kind, id.Name, now) })
	}
	for name, lim := range s.Limiters {
		if lim.Total != nil {
			add("limiter_total", name, lim.Total.Now, func(d descs, now int64) []sample { return samplesOfQueue(lim.Total, d, "limiter_total", name, now) })
		}
		var n fleet.Summary
		for _, l := range lim.Keys {
			if at := l.Now.OldestWait; at != 0 && (n.OldestWait == 0 || at < n.OldestWait) {
				n.OldestWait = at
			}
		}
		add("limiter", name, n, func(d descs, now int64) []sample { return samplesOfLimiter(lim, d, name, now) })
	}
	return out
}

func jobSubjects(s *fleet.State, now int64) (out []subject) {
	for name, j := range s.Jobs {
		if j.Forgotten() {
			continue
		}
		h := j.History(time.UnixMilli(now))
		out = append(out, subject{name: name, first: -int64(h.Lost + h.Repeated + h.Failed), samples: func(d descs, now int64) []sample { return samplesOfJob(j, d, name, h, now) }})
	}
	return out
}

func storeSubjects(s *fleet.State) (out []subject) {
	for name, st := range s.Stores {
		out = append(out, subject{name: name, first: -int64(st.Count[fleet.Unknown]), samples: func(d descs, _ int64) []sample { return samplesOfStore(st, d, name) }})
	}
	return out
}

func samplesOfQueue(l *fleet.Queue, d descs, kind, name string, now int64) []sample {
	of, n := []string{kind, name}, l.Now
	out := both(n, d, of, now)
	if n.Known {
		out = append(out, sample{d.limit, float64(n.Limit), of})
	}
	if rate := l.PerSecond(); rate > 0 {
		out = append(out, sample{d.perSecond, rate, of})
	}
	return append(out, holds(n, d, of, now, n.Overdue(now))...)
}

// both returns the metrics that queues and the sums over keys have.
func both(n fleet.Summary, d descs, of []string, now int64) []sample {
	return []sample{
		{d.held, float64(n.Used), of}, {d.waiting, float64(n.Waiting), of}, {d.waitingWeight, float64(n.Weight), of},
		{d.oldestWait, age(now, n.OldestWait), of}, {d.foreign, float64(n.Foreign), of},
	}
}

func holds(n fleet.Summary, d descs, of []string, now int64, overdue int) []sample {
	out := []sample{{d.oldestHold, age(now, n.OldestHold), of}, {d.unbounded, age(now, n.Unbounded), of}, {d.overdue, float64(overdue), of}}
	if n.MaxHold > 0 {
		out = append(out, sample{d.maxHold, seconds(n.MaxHold), of})
	}
	return out
}

func samplesOfLimiter(lim *fleet.Limiter, d descs, name string, now int64) []sample {
	of, n := []string{"limiter", name}, lim.Sum(now)
	out := append(both(n.Summary, d, of, now), sample{d.limiterKeys, float64(n.InUse), of}, sample{d.limiterFull, float64(n.FullKeys), of})
	if lim.Base.Rev != 0 && !lim.Base.Damaged {
		out = append(out, sample{d.limiterDefault, float64(lim.Base.Limit.Limit), of})
	}
	if !n.HasTotal {
		out = append(out, holds(n.Summary, d, of, now, n.Late)...)
	}
	return out
}

func samplesOfJob(j *fleet.Job, d descs, name string, h fleet.History, now int64) []sample {
	of := []string{"job", name}
	out := []sample{
		{d.jobRunning, number(j.Running()), of}, {d.jobPaused, number(j.Paused), of},
		{d.jobLost, float64(h.Lost + h.Repeated), of}, {d.jobFailed, float64(h.Failed), of},
	}
	for _, at := range [...]sample{{d.jobRun, seconds(h.LastRun), of}, {d.jobSuccess, seconds(j.Success), of}, {d.jobNext, seconds(h.Next), of}} {
		if at.value > 0 {
			out = append(out, at)
		}
	}
	if n, known := j.Processes(time.UnixMilli(now), h); known {
		out = append(out, sample{d.jobProcesses, float64(n), of})
	}
	return out
}

func samplesOfStore(st *fleet.Store, d descs, name string) []sample {
	out := []sample{{d.unknownOfOneScope, float64(st.UnknownOfOneScope()), []string{"store", name}}}
	for s := fleet.InProgress; s < fleet.Stages; s++ {
		out = append(out, sample{d.requests, float64(st.Count[s]), []string{"store", name, s.String()}})
	}
	return out
}
