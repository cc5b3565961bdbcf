package exporter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sample is one series.
type sample struct {
	desc   *prometheus.Desc
	value  float64
	labels []string
}

// Describe implements prometheus.Collector.
func (e *Exporter) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range e.descs.all {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It sends nothing to etcd: it computes the metrics from what
// Run has received.
func (e *Exporter) Collect(ch chan<- prometheus.Metric) {
	for _, s := range e.samples() {
		kind := prometheus.GaugeValue
		if s.desc == e.descs.lists {
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(s.desc, kind, s.value, s.labels...)
	}
}

func (e *Exporter) samples() []sample {
	e.mu.Lock()
	defer e.mu.Unlock()
	d, up := e.descs, e.up()
	out := []sample{{d.up, number(up), nil}, {d.lists, float64(e.lists), nil}}
	if e.state == nil {
		return out
	}
	answered := e.opts.Now().Add(-time.Since(e.answered))
	out = append(out, sample{d.revision, float64(e.revision), nil}, sample{d.answer, seconds(answered.UnixMilli()), nil})
	if !up {
		return out
	}
	now := e.now()
	e.state.settle(now)
	found, dropped := e.state.samples(d, now, e.opts.MaxNames)
	return append(append(out, found...), sample{d.dropped, float64(dropped), nil})
}

// samples returns the series of the namespace, and how many more there are.
func (s *state) samples(d descs, now int64, most int) (out []sample, dropped int) {
	out = []sample{
		{d.sessions, float64(len(s.sessions)), nil}, {d.leases, float64(len(s.leases)), nil}, {d.keys, float64(len(s.keys)), nil},
	}
	if ms, ok := s.clocks.skew(); ok {
		out = append(out, sample{d.skew, seconds(ms), nil})
	}
	for _, subjects := range [...][]subject{s.queueSubjects(), s.jobSubjects(), s.storeSubjects()} {
		for i, sub := range firstOf(subjects) {
			found := sub.samples(d, now)
			if i < most {
				out = append(out, found...)
			} else {
				dropped += len(found)
			}
		}
	}
	return out, dropped
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds converts milliseconds.
func seconds(ms int64) float64 { return float64(ms) / 1000 }

// age returns the seconds since a time, or 0 if there is none or it is ahead.
func age(now, at int64) float64 {
	if at == 0 {
		return 0
	}
	return seconds(max(0, now-at))
}
