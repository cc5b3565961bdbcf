package exporter

import (
	"cmp"
	"slices"
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

func (s *state) queueSubjects() (out []subject) {
	add := func(kind, name string, n summary, samples func(d descs, now int64) []sample) {
		out = append(out, subject{kind, name, cmp.Or(n.oldestWait, never), cmp.Or(n.oldestHold, never), samples})
	}
	for id, l := range s.queues {
		kind := kinds[id.kind].label
		add(kind, id.name, l.now, func(d descs, now int64) []sample { return l.samples(d, kind, id.name, now) })
	}
	for name, lim := range s.limiters {
		if lim.total != nil {
			add("limiter_total", name, lim.total.now, func(d descs, now int64) []sample { return lim.total.samples(d, "limiter_total", name, now) })
		}
		var n summary
		for _, l := range lim.keys {
			if at := l.now.oldestWait; at != 0 && (n.oldestWait == 0 || at < n.oldestWait) {
				n.oldestWait = at
			}
		}
		add("limiter", name, n, func(d descs, now int64) []sample { return lim.samples(d, name, now) })
	}
	return out
}

func (s *state) jobSubjects() (out []subject) {
	for name, j := range s.jobs {
		h := j.history()
		out = append(out, subject{name: name, first: -int64(h.lost + h.failed), samples: func(d descs, _ int64) []sample { return j.samples(d, name, h) }})
	}
	return out
}

func (s *state) storeSubjects() (out []subject) {
	for name, st := range s.stores {
		out = append(out, subject{name: name, first: -int64(st.count[unknown]), samples: func(d descs, _ int64) []sample { return st.samples(d, name) }})
	}
	return out
}

func (l *line) samples(d descs, kind, name string, now int64) []sample {
	of, n := []string{kind, name}, l.now
	out := n.both(d, of, now)
	if n.known {
		out = append(out, sample{d.limit, float64(n.limit), of})
	}
	return append(out, n.holds(d, of, now, n.overdue(now))...)
}

// both returns the metrics that queues and the sums over keys have.
func (n summary) both(d descs, of []string, now int64) []sample {
	return []sample{
		{d.held, float64(n.used), of}, {d.waiting, float64(n.waiting), of}, {d.waitingWeight, float64(n.weight), of},
		{d.oldestWait, age(now, n.oldestWait), of}, {d.foreign, float64(n.foreign), of},
	}
}

func (n summary) holds(d descs, of []string, now int64, overdue int) []sample {
	out := []sample{{d.oldestHold, age(now, n.oldestHold), of}, {d.overdue, float64(overdue), of}}
	if n.maxHold > 0 {
		out = append(out, sample{d.maxHold, seconds(n.maxHold), of})
	}
	return out
}

func (lim *limiter) samples(d descs, name string, now int64) []sample {
	of, n := []string{"limiter", name}, lim.sum(now)
	out := append(n.both(d, of, now), sample{d.limiterKeys, float64(n.inUse), of[1:]}, sample{d.limiterFull, float64(n.full), of[1:]})
	if lim.base.Rev != 0 && !lim.base.Damaged {
		out = append(out, sample{d.limiterDefault, float64(lim.base.Limit.Limit), of[1:]})
	}
	if !n.hasTotal {
		out = append(out, n.holds(d, of, now, n.overdue)...)
	}
	return out
}

func (j *job) samples(d descs, name string, h history) []sample {
	of := []string{name}
	out := []sample{
		{d.jobRunning, number(j.lock != 0), of}, {d.jobPaused, number(j.paused), of},
		{d.jobLost, float64(h.lost), of}, {d.jobFailed, float64(h.failed), of},
	}
	for _, at := range [...]sample{{d.jobRun, seconds(h.lastRun), of}, {d.jobSuccess, seconds(j.success), of}, {d.jobNext, seconds(h.next), of}} {
		if at.value > 0 {
			out = append(out, at)
		}
	}
	return out
}

func (st *store) samples(d descs, name string) (out []sample) {
	for s := inProgress; s < stages; s++ {
		out = append(out, sample{d.requests, float64(st.count[s]), []string{name, stageNames[s]}})
	}
	return out
}
