package exporter

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcdkit/etcdkit/internal/fleet"
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
	e.send(ch, e.samples())
}

func (e *Exporter) send(ch chan<- prometheus.Metric, samples []sample) {
	for _, s := range samples {
		kind := prometheus.GaugeValue
		if s.desc == e.descs.lists {
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(s.desc, kind, s.value, s.labels...)
	}
}

func (e *Exporter) samples() (out []sample) {
	e.fleet.View(func(s *fleet.State, m fleet.Meta) { out = e.samplesOf(s, m) })
	return out
}

func (e *Exporter) samplesOf(s *fleet.State, m fleet.Meta) []sample {
	d := e.descs
	out := []sample{{d.up, number(m.Up), nil}, {d.lists, float64(m.Lists), nil}}
	if s == nil {
		return out
	}
	out = append(out, sample{d.revision, float64(m.Revision), nil}, sample{d.answer, seconds(m.Answered.UnixMilli()), nil})
	if !m.Up {
		return out
	}
	found, dropped := samples(s, d, e.opts.Now().UnixMilli(), e.opts.MaxNames)
	return append(append(out, found...), sample{d.dropped, float64(dropped), nil})
}

// samples returns the series of the namespace, and how many more there are.
func samples(s *fleet.State, d descs, now int64, most int) (out []sample, dropped int) {
	out = []sample{
		{d.sessions, float64(len(s.Sessions)), nil}, {d.leases, float64(s.Leases()), nil}, {d.keys, float64(s.Keys()), nil},
	}
	if ms, ok := s.Skew(); ok {
		out = append(out, sample{d.skew, seconds(ms), nil})
	}
	for _, p := range s.Off(leastOff, mostOff, ownerOf) {
		out = append(out, sample{d.off, seconds(p.MS), []string{p.Owner}})
	}
	for _, subjects := range [...][]subject{queueSubjects(s), jobSubjects(s, now), storeSubjects(s)} {
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

// Of the clocks that differ by leastOff milliseconds or more, so many are published, each with its owner, of which a label
// has so many bytes: all that a session may have.
const (
	leastOff   = 1000
	mostOff    = 10
	ownerBytes = 255
)

// ownerOf is an owner as a label.
func ownerOf(owner string) string {
	return strings.ToValidUTF8(owner[:min(len(owner), ownerBytes)], "")
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
