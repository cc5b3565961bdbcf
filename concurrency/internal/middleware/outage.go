package middleware

import (
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/outage"
)

// detector notices outages of etcd for an Admission. It reports when the policy begins and ceases to decide.
type detector struct {
	*outage.Detector[limit]
	patience time.Duration
}

// limit is what a request has called: a semaphore or a rate, as seen behind its door.
type limit interface {
	ReportOutage(policy string, err error, lasted time.Duration)
	AskInOutage(idle func(now time.Time) (on, idle bool), answered func())
	Answers(err error) bool
	Answered() time.Time
	Silent() (lasts time.Duration, err error)
}

// newDetector returns a detector. In an outage of a service without requests, its session asks etcd in their place:
// otherwise the policy would be reported to decide until the next request.
func newDetector(s Settings) detector {
	d := detector{patience: s.Patience}
	d.Detector = outage.New(func(of limit, err error, lasted time.Duration) {
		of.ReportOutage(policies[s.Outage], err, lasted)
		if err != nil {
			of.AskInOutage(d.Idle, d.Answered)
		}
		if s.OnOutage != nil {
			s.OnOutage(err)
		}
	})
	return d
}

// policies are the outage policies as hooks see them.
var policies = [...]string{Closed: "closed", Open: "open", Share: "share"}

// learn reports whether the error of a request without a permit is an outage. Latency is none: etcd
// has to be silent for patience. A refusal is none, and ends one: etcd answers. of is what the request has called.
func (d detector) learn(err error, of limit) bool {
	silent, ok := errors.AsType[*concurrency.UnavailableError](err)
	switch {
	case of.Answers(err):
		d.Answered()
	case ok:
		return d.Unanswered(silent, of, silent.Since, time.Now().Add(-d.patience))
	}
	return false
}
