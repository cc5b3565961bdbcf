package middleware

import (
	"errors"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/internal/share"
	"github.com/etcdkit/etcdkit/internal/outage"
)

// detector notices outages of etcd for an Admission. It reports when the policy begins and ceases to decide.
type detector struct {
	*outage.Detector
	patience time.Duration
}

func newDetector(s Settings) detector {
	return detector{patience: s.Patience, Detector: outage.New(func(of any, err error, lasted time.Duration) {
		share.Report(of, policies[s.Outage], err, lasted)
		if s.OnOutage != nil {
			s.OnOutage(err)
		}
	})}
}

// policies are the outage policies as hooks see them.
var policies = [...]string{Closed: "closed", Open: "open", Share: "share"}

// learn reports whether the error of a request without a permit is an outage. Latency is none: etcd
// has to be silent for patience. of is what the request has called.
func (d detector) learn(err error, of any) bool {
	silent, ok := errors.AsType[*concurrency.UnavailableError](err)
	switch {
	case ok && d.Unanswered(silent, of, silent.Since, time.Now().Add(-d.patience)):
		return true
	case errors.Is(err, concurrency.ErrFull), errors.Is(err, concurrency.ErrHeld), errors.Is(err, concurrency.ErrLimitMismatch):
		d.Answered()
	}
	return false
}
