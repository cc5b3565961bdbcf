package exporter

import (
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// job is one job of schedlock.
type job struct {
	queues  keyspace.Job
	keys    int           // the number of its keys
	lock    int64         // create revision of the lock, or 0
	paused  bool          // a pause is stored
	period  time.Duration // of its settings, or 0
	runs    map[int64]run // by tick
	success int64         // latest end of a run without an error, or 0
}

// run is one record. State is "" if it cannot be read.
type run struct {
	state string
	mod   int64
	start int64
}

func (s *state) changeJob(key string, kv *mvccpb.KeyValue, known bool) {
	name, _, ok := s.space.ParseJob(key)
	if !ok || keyspace.CheckJob(name) != nil {
		return
	}
	j := s.jobs[name]
	if j == nil {
		j = &job{queues: s.space.Job(name), runs: map[int64]run{}}
		s.jobs[name] = j
	}
	j.change(key, kv)
	switch {
	case kv != nil && !known:
		j.keys++
	case kv == nil:
		if j.keys--; j.keys == 0 {
			delete(s.jobs, name)
		}
	}
}

// change adds, replaces or removes a key of the job.
func (j *job) change(key string, kv *mvccpb.KeyValue) {
	switch key {
	case j.queues.Lock():
		if j.lock = 0; kv != nil {
			j.lock = kv.CreateRevision
		}
	case j.queues.Pause():
		j.paused = kv != nil
	case j.queues.Settings():
		if j.period = 0; kv != nil {
			j.period, _ = record.PeriodOf(kv.Value)
		}
	default:
		tick, ok := j.queues.ParseRun(key)
		switch {
		case !ok:
		case kv == nil:
			delete(j.runs, tick.UnixMilli())
		default:
			r, ok := record.DecodeRun(kv.Value)
			if !ok {
				r = record.Run{}
			}
			j.runs[tick.UnixMilli()] = run{state: r.State, mod: kv.ModRevision, start: r.StartMS}
			if r.State == record.RunDone {
				j.success = max(j.success, r.EndMS)
			}
		}
	}
}

// history is what a job's records show.
type history struct {
	lost, failed int
	lastRun      int64 // start of the latest attempt, or 0
	next         int64 // the fire time after the latest record, or 0
}

func (j *job) history() (h history) {
	latest := int64(-1)
	for tick, r := range j.runs {
		switch {
		case r.state == record.RunFailed:
			h.failed++
		case r.state == record.RunRunning && r.mod != j.lock:
			h.lost++
		}
		h.lastRun = max(h.lastRun, r.start)
		latest = max(latest, tick)
	}
	if period := j.period.Milliseconds(); latest >= 0 && period > 0 {
		h.next = latest - latest%period + period
	}
	return h
}
