package exporter

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/etcdkit/etcdkit/internal/fleet"
)

// sample is one series. It is a prometheus.Metric, since one of client_golang's makes and sorts its labels anew for each
// series, which takes most of a scrape.
type sample struct {
	desc    *prometheus.Desc
	value   float64
	labels  labels
	counter bool
	gauge   *dto.Gauge // unless it is a counter
}

// labels are those of a series, sorted by name. All series of a name share them, so they are not changed.
type labels []*dto.LabelPair

// Desc implements prometheus.Metric.
func (s *sample) Desc() *prometheus.Desc { return s.desc }

// Write implements prometheus.Metric.
func (s *sample) Write(to *dto.Metric) error {
	to.Label = s.labels[:len(s.labels):len(s.labels)] // a Registerer that adds labels appends to them
	if s.counter {
		to.Counter = &dto.Counter{Value: &s.value}
	} else {
		to.Gauge = s.gauge
	}
	return nil
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
	send(ch, e.samples())
}

func send(ch chan<- prometheus.Metric, samples []sample) {
	gauges := make([]dto.Gauge, len(samples)) // at once: there may be tens of thousands
	for i := range samples {
		gauges[i].Value, samples[i].gauge = &samples[i].value, &gauges[i]
		ch <- &samples[i]
	}
}

// samples returns all series. Calls at the same time wait for each other.
func (e *Exporter) samples() (out []sample) {
	e.fleet.View(func(s *fleet.State, m fleet.Meta) { out = e.samplesOf(s, m) })
	return out
}

func (e *Exporter) samplesOf(s *fleet.State, m fleet.Meta) []sample {
	d := e.descs
	d.made.next()
	of := d.of(d.up)
	lists := of.gauge(d.lists, float64(m.Lists))
	lists.counter = true
	out := []sample{of.gauge(d.up, number(m.Up)), lists}
	if s == nil {
		return out
	}
	out = append(out, of.gauge(d.revision, float64(m.Revision)), of.gauge(d.answer, seconds(m.Answered.UnixMilli())))
	if !m.Up {
		return out
	}
	found, dropped := samples(s, d, e.opts.Now().UnixMilli(), e.opts.MaxNames)
	return append(append(out, found...), of.gauge(d.dropped, float64(dropped)))
}

// samples returns the series of the namespace, and how many more there are.
func samples(s *fleet.State, d descs, now int64, most int) (out []sample, dropped int) {
	of := d.of(d.sessions)
	out = []sample{
		of.gauge(d.sessions, float64(len(s.Sessions))), of.gauge(d.leases, float64(s.Leases())), of.gauge(d.keys, float64(s.Keys())),
	}
	if ms, ok := s.Skew(now); ok {
		out = append(out, of.gauge(d.skew, seconds(ms)))
	}
	if keys, _ := s.Foreign(); len(keys) > 0 {
		out = append(out, d.of(d.foreign, "", "").gauge(d.foreign, float64(len(keys))))
	}
	for _, p := range s.Off(now, leastOff, mostOff, ownerOf) {
		out = append(out, d.of(d.off, p.Owner).gauge(d.off, seconds(p.MS)))
	}
	for _, p := range s.Died(now, ownerOf) {
		out = append(out, d.of(d.died, p.Owner).gauge(d.died, seconds(p.At)))
	}
	for _, subjects := range [...][]subject{queueSubjects(s), jobSubjects(s, now), storeSubjects(s)} {
		published, others := split(subjects, most)
		out = slices.Grow(out, perSubject*len(published))
		for _, sub := range published {
			out = sub.samples(out, d, now)
		}
		forgotten := d
		forgotten.made = &made{now: map[valuesOf]labels{}} // MaxNames bounds the labels that are kept, too
		for _, sub := range others {
			dropped += len(sub.samples(nil, forgotten, now))
		}
	}
	return out, dropped
}

// perSubject is about how many series a queue, a job or a store has.
const perSubject = 9

// of returns the labels of the series of a metric, and of others that have the same variable labels, with their values.
func (d descs) of(metric *prometheus.Desc, values ...string) labels {
	key := valuesOf{count: len(values)}
	copy(key.values[:], values)
	l, ok := d.made.now[key]
	if !ok {
		if l, ok = d.made.before[key]; !ok {
			l = prometheus.MakeLabelPairs(metric, values)
		}
		d.made.now[key] = l
	}
	return l
}

// made are the labels that were made for the present scrape, and for the one before, which most series have again. It is used by one
// scrape at a time.
type made struct{ now, before map[valuesOf]labels }

// valuesOf are the values of variable labels.
type valuesOf struct {
	count  int
	values [3]string
}

// next begins a scrape. Labels that the one before did not have are forgotten.
func (m *made) next() { m.now, m.before = make(map[valuesOf]labels, len(m.now)), m.now }

// gauge returns a series with the labels.
func (l labels) gauge(metric *prometheus.Desc, value float64) sample {
	return sample{desc: metric, value: value, labels: l}
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
