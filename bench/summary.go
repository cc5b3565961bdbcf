package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/etcdkit/etcdkit/bench/measure"
)

// The page for users has some of the figures: these tables.
type (
	summary struct {
		head []string // the first is what the figures are, and which ones are better
		rows []line
	}
	line struct {
		label string
		cells []entry
	}
	// entry is the ratio of a cell and another one, or a figure of the cell.
	entry struct {
		of, against string // against is empty for a figure
		metric      measure.Metric
		unit        string
	}
)

// no is a cell for which nothing was measured, on purpose.
var no entry

func ratio(of, against string, m measure.Metric) entry {
	return entry{of: of, against: against, metric: m}
}

const (
	shortKind   = "limit 1, 1 ms of work, 8 processes: "
	waitingKind = "waiting, limit 1: "
	freeKind    = "acquire and release a free permit: "
	sharedKind  = "limit 10, 1 ms of work, 8 processes, 128 callers: "
	passKind    = "hand-over, limit 1, 8 processes: "
	manyKind    = "new idempotent requests, 512 in flight: "
	singleKind  = "new idempotent requests, 1 in flight: "
)

// summaries returns the tables. A row of which nothing was measured is left out.
func summaries() []summary {
	rate := func(kind, of, against string) entry { return ratio(kind+of, kind+against, measure.Rate) }
	µs := func(id string) entry { return entry{of: id, metric: measure.EachTime, unit: " µs"} }
	ms := func(kind, id string, m measure.Metric) entry { return entry{of: kind + id, metric: m, unit: " ms"} }
	waits := func(id string) []entry {
		return []entry{{of: id, metric: measure.WaitMedian}, {of: id, metric: measure.Wait99}, {of: id, metric: measure.Unfair}}
	}
	requests := func(who string) []entry {
		return []entry{{of: manyKind + who, metric: measure.Rate}, {of: manyKind + who, metric: measure.BothCPU, unit: " µs"}, ms(singleKind, who, measure.WaitMedian)}
	}
	return []summary{
		{[]string{"speed (more is better)", "etcd's Mutex", "redislock, fsync always", "x/sync, one process"}, []line{
			{"limit 1, 1 ms of work, 8 processes", []entry{rate(shortKind, "ours", "etcd Mutex"), rate(shortKind, "ours", "redislock always"), rate(shortKind, "ours", "x/sync")}},
			{"limit 1, 64 waiting processes", []entry{rate(waitingKind, "ours, 64 processes", "etcd Mutex, 64 processes"), no, no}},
			{"limit 1, 512 waiting processes", []entry{rate(waitingKind, "ours, 512 processes", "etcd Mutex, 512 processes"), no, no}},
			{"limit 10, 1 ms of work, 128 callers in 8 processes", []entry{no, no, rate(sharedKind, "ours", "x/sync")}},
			{"the same, `Handover` of 20 ms", []entry{no, no, rate(sharedKind, "ours, Handover", "x/sync")}},
		}},
		{[]string{"time (less is better)", "etcdkit", "bare writes", "redislock, fsync always"}, []line{
			{"acquire and release a free permit", []entry{µs(freeKind + "ours"), µs(freeKind + "create + delete"), µs(freeKind + "redislock always")}},
			{"the same, kept by its process (`Keep`)", []entry{µs(freeKind + "ours, Keep"), no, no}},
			{"from a release to the next of 8 processes", []entry{ms(passKind, "ours", measure.PassMedian), ms(passKind, "delete + event", measure.PassMedian), no}},
			{"a replay from the cache", []entry{µs("replay from the cache: ours"), no, no}},
		}},
		{[]string{"new idempotent requests", "per second, 512 in flight", "processor time of each", "one at a time"}, []line{
			{"etcdkit", requests("ours")},
			{"etcdkit, `LikelyNew`", requests("ours, LikelyNew")},
			{"etcd's client alone, many in a Txn", requests("floor")},
			{"Redis, fsync always", requests("Redis always")},
		}},
		{[]string{"wait for a lock, ms", "p50", "p99", "longest : mean"}, []line{
			{"etcdkit, 64 processes", waits(waitingKind + "ours, 64 processes")},
			{"redislock, fsync always, 8 processes", waits(shortKind + "redislock always")},
		}},
	}
}

// text is the cell as the tables of make bench have it, or "" without a figure.
func (e entry) text(r *measure.Results) string {
	if e.against != "" {
		if v := r.Judge(measure.Comparison{Of: e.of, Against: e.against, Metric: e.metric}); v.Missing == "" {
			return measure.Figure(v.Ratio) + "×"
		}
	} else if v, ok := r.Of(e.of, e.metric); ok {
		return measure.Figure(v) + e.unit
	}
	return ""
}

// summarize writes the tables of the page for users.
func summarize(w io.Writer, m measure.Machine, r *measure.Results) {
	fmt.Fprintf(w, "Ratios are *etcdkit : the other*. %s; %s, %d cores; etcd %s, Redis %s, servers and clients on one machine; a write with fsync takes %.1f ms.\n",
		m.Date, m.CPU, m.Cores, m.Etcd, m.Redis, m.Fsync)
	for _, s := range summaries() {
		var rows [][]string
		for _, l := range s.rows {
			row := []string{l.label}
			for _, e := range l.cells {
				row = append(row, e.text(r))
			}
			if strings.Join(row[1:], "") != "" {
				rows = append(rows, row)
			}
		}
		if len(rows) > 0 {
			fmt.Fprintln(w)
			measure.Grid(w, append([][]string{s.head}, rows...))
		}
	}
}
