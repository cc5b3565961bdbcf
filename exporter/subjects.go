package exporter

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
)

// subject is one queue, job or store, as far as it decides which are published.
type subject struct {
	kind, name    string
	first, second int64 // those with the lowest values are published if there are too many
	samples       func(to []sample, d descs, now int64) []sample
}

// byLabels is the order in which client_golang sorts series: those that come in it cost less.
func byLabels(a, b subject) int {
	return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
}

// split returns the subjects that are published, at most so many, in the order of their labels, and the others.
func split(all []subject, most int) (published, others []subject) {
	if len(all) > most {
		slices.SortFunc(all, func(a, b subject) int {
			return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.second, b.second), byLabels(a, b))
		})
		all, others = all[:most], all[most:]
	}
	slices.SortFunc(all, byLabels)
	return all, others
}

// never sorts a queue in which no request waits, or holds, behind the others.
const never = 1 << 62

func queueSubjects(s *fleet.State) []subject {
	out := make([]subject, 0, len(s.Queues)+2*len(s.Limiters))
	add := func(kind, name string, n fleet.Summary, samples func(to []sample, d descs, now int64) []sample) {
		out = append(out, subject{kind, name, cmp.Or(n.OldestWait, never), cmp.Or(n.OldestHold, never), samples})
	}
	for id, l := range s.Queues {
		kind := id.Label()
		add(kind, id.Name, l.Now, func(to []sample, d descs, now int64) []sample { return samplesOfQueue(to, l, d, kind, id.Name, now) })
	}
	for name, lim := range s.Limiters {
		if lim.Total != nil {
			add("limiter_total", name, lim.Total.Now, func(to []sample, d descs, now int64) []sample {
				return samplesOfQueue(to, lim.Total, d, "limiter_total", name, now)
			})
		}
		var n fleet.Summary
		for _, l := range lim.Keys {
			if at := l.Now.OldestWait; at != 0 && (n.OldestWait == 0 || at < n.OldestWait) {
				n.OldestWait = at
			}
		}
		add("limiter", name, n, func(to []sample, d descs, now int64) []sample { return samplesOfLimiter(to, lim, d, name, now) })
	}
	return out
}

func jobSubjects(s *fleet.State, now int64) (out []subject) {
	_, foreign := s.Foreign()
	for name, j := range s.Jobs {
		n, forgotten := foreign[name], j.Forgotten()
		if forgotten && n == 0 {
			continue
		}
		h := j.History(time.UnixMilli(now))
		first := -int64(h.Lost + h.Repeated + h.Failed)
		if forgotten {
			first = never // a name of another program: real jobs come before it
		}
		out = append(out, subject{name: name, first: first, samples: func(to []sample, d descs, now int64) []sample {
			if n > 0 {
				to = append(to, d.of(d.foreign, "job", name).gauge(d.foreign, float64(n)))
			}
			if forgotten {
				return to
			}
			return samplesOfJob(to, j, d, name, h, now)
		}})
	}
	return out
}

func storeSubjects(s *fleet.State) (out []subject) {
	for name, st := range s.Stores {
		out = append(out, subject{name: name, first: -int64(st.Count[fleet.Unknown]), samples: func(to []sample, d descs, _ int64) []sample {
			return samplesOfStore(to, st, d, name)
		}})
	}
	return out
}

func samplesOfQueue(to []sample, l *fleet.Queue, d descs, kind, name string, now int64) []sample {
	of, n := d.of(d.held, kind, name), l.Now
	to = both(to, n, d, of, now)
	if n.Unreadable != nil {
		to = append(to, of.gauge(d.unreadable, 1))
	}
	if n.Known {
		to = append(to, of.gauge(d.limit, float64(n.Limit)))
	}
	if rate := l.PerSecond(); rate > 0 {
		to = append(to, of.gauge(d.perSecond, rate))
	}
	return holds(to, n, d, of, now, n.Overdue(now))
}

// both adds the metrics that queues and the sums over keys have.
func both(to []sample, n fleet.Summary, d descs, of labels, now int64) []sample {
	return append(to,
		of.gauge(d.held, float64(n.Used)), of.gauge(d.waiting, float64(n.Waiting)), of.gauge(d.waitingWeight, float64(n.Weight)),
		of.gauge(d.oldestWait, age(now, n.OldestWait)), of.gauge(d.foreign, float64(n.Foreign)))
}

func holds(to []sample, n fleet.Summary, d descs, of labels, now int64, overdue int) []sample {
	to = append(to, of.gauge(d.oldestHold, age(now, n.OldestHold)), of.gauge(d.unbounded, age(now, n.Unbounded)), of.gauge(d.overdue, float64(overdue)))
	if n.MaxHold > 0 {
		to = append(to, of.gauge(d.maxHold, seconds(n.MaxHold)))
	}
	return to
}

func samplesOfLimiter(to []sample, lim *fleet.Limiter, d descs, name string, now int64) []sample {
	of, n := d.of(d.held, "limiter", name), lim.Sum(now)
	to = append(both(to, n.Summary, d, of, now), of.gauge(d.limiterOwn, float64(n.Own)), of.gauge(d.limiterKeys, float64(n.InUse)), of.gauge(d.limiterFull, float64(n.FullKeys)), of.gauge(d.limiterPaused, float64(n.Blocked)))
	if lim.Base.Rev != 0 && !lim.Base.Damaged {
		to = append(to, of.gauge(d.limiterDefault, float64(lim.Base.Limit.Limit)))
	}
	if n.Unreadable > 0 {
		to = append(to, of.gauge(d.unreadable, float64(n.Unreadable)))
	}
	if !n.HasTotal {
		to = holds(to, n.Summary, d, of, now, n.Late)
	}
	return to
}

func samplesOfJob(to []sample, j *fleet.Job, d descs, name string, h fleet.History, now int64) []sample {
	of := d.of(d.jobRunning, "job", name)
	to = append(to, of.gauge(d.jobRunning, number(j.Running())), of.gauge(d.jobPaused, number(j.Paused)),
		of.gauge(d.jobLost, float64(h.Lost+h.Repeated)), of.gauge(d.jobFailed, float64(h.Failed)))
	for _, at := range [...]sample{
		of.gauge(d.jobRun, seconds(h.LastRun)), of.gauge(d.jobSuccess, seconds(h.Success)), of.gauge(d.jobNext, seconds(h.Next)),
		of.gauge(d.jobFailure, seconds(h.LastFailure)), of.gauge(d.jobLostAt, seconds(h.LastLost)),
	} {
		if at.value > 0 {
			to = append(to, at)
		}
	}
	if n, known := j.Processes(time.UnixMilli(now), h); known {
		to = append(to, of.gauge(d.jobProcesses, float64(n)))
	}
	return to
}

func samplesOfStore(to []sample, st *fleet.Store, d descs, name string) []sample {
	to = append(to, d.of(d.unknownOfOneScope, "store", name).gauge(d.unknownOfOneScope, float64(st.UnknownOfOneScope())))
	for _, s := range stages {
		to = append(to, d.of(d.requests, "store", name, s.String()).gauge(d.requests, float64(st.Count[s])))
	}
	return to
}

// stages are those of requests, in the order of their labels.
var stages = func() (all []fleet.Stage) {
	for s := fleet.InProgress; s < fleet.Stages; s++ {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b fleet.Stage) int { return strings.Compare(a.String(), b.String()) })
	return all
}()
