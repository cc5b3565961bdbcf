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
}

func newDetector(s Settings) detector {
	return detector{patience: s.Patience, Detector: outage.New(func(of limit, err error, lasted time.Duration) {
		of.ReportOutage(policies[s.Outage], err, lasted)
		if s.OnOutage != nil {
			s.OnOutage(err)
		}
	})}
}

// policies are the outage policies as hooks see them.
var policies = [...]string{Closed: "closed", Open: "open", Share: "share"}

// learn reports whether the error of a request without a permit is an outage. Latency is none: etcd
// has to be silent for patience. of is what the request has called.
func (d detector) learn(err error, of limit) bool {
	silent, ok := errors.AsType[*concurrency.UnavailableError](err)
	switch {
	case ok && d.Unanswered(silent, of, silent.Since, time.Now().Add(-d.patience)):
		return true
	case errors.Is(err, concurrency.ErrFull), errors.Is(err, concurrency.ErrHeld), errors.Is(err, concurrency.ErrLimitMismatch):
		d.Answered()
	}
	return false
}
