package measure

import (
	"strings"

	"github.com/etcdkit/etcdkit/observe"
)

// Type is how an instrument adds up what it receives.
type Type int

// The types of instruments.
const (
	Counter Type = iota
	UpDownCounter
	Histogram
)

// Instrument is one metric.
type Instrument struct {
	Name   string // as OpenTelemetry writes it
	Type   Type
	Unit   string // of UCUM
	Help   string
	Bounds []float64 // of a histogram's buckets
	Labels []Label   // that its series may have
}

// buckets are the bounds of durations, in seconds: from a round trip to etcd to the wait for a job.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}

// shares are the bounds of the lateness of renewals. A third is normal, and half is late.
var shares = []float64{.1, .2, .3, .35, .4, .5, .6, .7, .8, .9, 1}

var (
	ofNamespace = []Label{Namespace}
	ofName      = []Label{Namespace, Kind, Name}
	ofCall      = []Label{Namespace, Kind, Name, Result, Reason, ErrorType}
)

func duration(op, help string) *Instrument {
	return &Instrument{"etcdkit." + op + ".duration", Histogram, "s", help, buckets, ofCall}
}

func with(labels []Label, more ...Label) []Label {
	return append(labels[:len(labels):len(labels)], more...)
}

// The instruments.
var (
	acquire = duration("acquire", "Time of calls for a permit or a term.")
	hold    = duration("hold", "Time for which permits and terms were held.")
	release = duration("release", "Time of calls that release a permit.")
	claim   = duration("claim", "Time of calls that claim a tick of a job.")
	run     = duration("run", "Time of the functions of jobs.")
	begin   = duration("begin", "Time of calls that begin an attempt at a request.")
	execute = duration("execute", "Time of attempts at requests.")
	rec     = duration("record", "Time of calls that record the end of an attempt.")

	active      = &Instrument{"etcdkit.active", UpDownCounter, "{operation}", "Operations that have begun and not ended.", nil, with(ofName, Op)}
	jobDelay    = &Instrument{"etcdkit.job.delay", Histogram, "s", "Time from the fire time of a tick to its claim.", buckets, ofName}
	permitsLost = &Instrument{"etcdkit.permit.lost", Counter, "{permit}", "Permits that ended before their holder released them.", nil, with(ofName, Reason)}
	overrun     = &Instrument{"etcdkit.overrun.duration", Histogram, "s", "Time for which work continued after a loss.", buckets, with(ofName, Op)}
	rateCalls   = &Instrument{"etcdkit.rate.calls", Counter, "{call}", "Calls for a token of a rate.", nil, with(ofName, Result, Reason)}
	limitSet    = &Instrument{"etcdkit.limit.changes", Counter, "{change}", "Changes of a limit that sessions have seen.", nil, ofName}
	outages     = &Instrument{"etcdkit.outage.active", UpDownCounter, "{policy}", "Outage policies that decide now.", nil, with(ofName, Policy)}
	unclaimed   = &Instrument{"etcdkit.request.unclaimed", Counter, "{request}", "Requests whose handler has run without a claim.", nil, ofName}

	lost      = &Instrument{"etcdkit.session.lost", Counter, "{session}", "Sessions that lost their lease.", nil, ofNamespace}
	recovered = &Instrument{"etcdkit.session.recovered", Counter, "{session}", "Lost sessions that have a new lease.", nil, ofNamespace}
	without   = &Instrument{"etcdkit.session.without_lease", UpDownCounter, "{session}", "Sessions that have lost their lease, have no new one and are not closed.", nil, ofNamespace}
	renewal   = &Instrument{"etcdkit.session.renewal.age", Histogram, "s", "Time from the sending of one renewal to the answer to the next.", buckets, ofNamespace}
	lateness  = &Instrument{"etcdkit.session.renewal.lateness", Histogram, "1", "The age of a renewal divided by the TTL.", shares, ofNamespace}
	panics    = &Instrument{"etcdkit.hook.panics", Counter, "{panic}", "Panics of hooks.", nil, ofNamespace}
)

// All are all instruments.
var All = []*Instrument{
	acquire, hold, release, claim, run, begin, execute, rec, active, jobDelay, permitsLost, overrun, rateCalls, limitSet, outages, unclaimed,
	lost, recovered, without, renewal, lateness, panics,
}

// durations are the instruments of operations.
var durations = map[observe.Op]*Instrument{
	observe.Acquire: acquire, observe.Campaign: acquire, observe.Hold: hold, observe.Lead: hold, observe.Release: release,
	observe.Claim: claim, observe.Run: run, observe.Begin: begin, observe.Execute: execute, observe.Record: rec,
}

// Prometheus returns the name that OpenTelemetry's exporter for Prometheus gives the instrument.
func (i *Instrument) Prometheus() string {
	name := underscored(i.Name)
	if i.Unit == "s" {
		name += "_seconds"
	}
	if i.Type == Counter {
		name += "_total"
	}
	return name
}

func underscored(name string) string { return strings.ReplaceAll(name, ".", "_") }
