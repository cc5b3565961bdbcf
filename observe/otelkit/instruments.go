package otelkit

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/etcdkit/etcdkit/observe"
)

// buckets are the bounds of durations, in seconds: from a round trip to etcd to the wait for a job.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}

// shares are the bounds of the lateness of renewals. A third is normal, and half is late.
var shares = []float64{.1, .2, .3, .35, .4, .5, .6, .7, .8, .9, 1}

// instruments are the metrics.
type instruments struct {
	durations map[observe.Op]metric.Float64Histogram

	active, outages                        metric.Int64UpDownCounter
	jobDelay, overrun, renewal, lateness   metric.Float64Histogram
	permitsLost, lost, recovered, limitSet metric.Int64Counter
}

// instrument makes the metrics.
func (k *kit) instrument(m metric.Meter) error {
	var errs []error
	histogram := func(name, unit, text string, bounds []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	upDown := func(name, unit, text string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	acquire := histogram("etcdkit.acquire.duration", "s", "Time of calls for a permit or a term.", buckets)
	hold := histogram("etcdkit.hold.duration", "s", "Time for which permits and terms were held.", buckets)
	k.durations = map[observe.Op]metric.Float64Histogram{
		observe.Acquire: acquire, observe.Campaign: acquire, observe.Hold: hold, observe.Lead: hold,
		observe.Release: histogram("etcdkit.release.duration", "s", "Time of calls that release a permit.", buckets),
		observe.Claim:   histogram("etcdkit.claim.duration", "s", "Time of calls that claim a tick of a job.", buckets),
		observe.Run:     histogram("etcdkit.run.duration", "s", "Time of the functions of jobs.", buckets),
		observe.Begin:   histogram("etcdkit.begin.duration", "s", "Time of calls that begin an attempt at a request.", buckets),
		observe.Execute: histogram("etcdkit.execute.duration", "s", "Time of attempts at requests.", buckets),
		observe.Record:  histogram("etcdkit.record.duration", "s", "Time of calls that record the end of an attempt.", buckets),
	}
	k.active = upDown("etcdkit.active", "{call}", "Calls of an operation that have begun and not ended.")
	k.outages = upDown("etcdkit.outage.active", "{policy}", "Outage policies that decide now.")
	k.jobDelay = histogram("etcdkit.job.delay", "s", "Time from the fire time of a tick to its claim.", buckets)
	k.overrun = histogram("etcdkit.overrun.duration", "s", "Time for which work continued after a loss.", buckets)
	k.renewal = histogram("etcdkit.session.renewal.age", "s", "Time from the sending of one renewal to the answer to the next.", buckets)
	k.lateness = histogram("etcdkit.session.renewal.lateness", "1", "The age of a renewal divided by the TTL.", shares)
	k.permitsLost = counter("etcdkit.permit.lost", "{permit}", "Permits that ended before their holder released them.")
	k.lost = counter("etcdkit.session.lost", "{session}", "Sessions that lost their lease.")
	k.recovered = counter("etcdkit.session.recovered", "{session}", "Lost sessions that have a new lease.")
	k.limitSet = counter("etcdkit.limit.changes", "{change}", "Changes of a limit that sessions have seen.")
	return errors.Join(errs...)
}

// ended records the end of a call.
func (k *kit) ended(ctx context.Context, c observe.Call, o observe.Outcome) {
	of := labels{namespace: c.Namespace, kind: c.Kind, name: c.Name}
	if c.Op == observe.Claim && o.Result == observe.Granted {
		k.jobDelay.Record(ctx, max(0, time.Since(o.Tick).Seconds()), k.sets.of(of))
	}
	of.result, of.reason = o.Result, o.Reason
	if d := k.durations[c.Op]; d != nil {
		d.Record(ctx, o.Took.Seconds(), k.sets.of(of))
	}
}
