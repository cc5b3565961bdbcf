// Package middleware is the half of an idempotency middleware that is the same for every
// transport: it begins requests with a store, records how their handlers end, and says for
// which reason a request is refused. The packages idemhttp and idemgrpc translate between it
// and their transport.
package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/silence"
	"github.com/etcdkit/etcdkit/idempotency/internal/unclaimed"
)

// maxTime is the greatest Wait and StoreTimeout, far below that with which their sum would
// overflow.
const maxTime = 24 * time.Hour

// Settings are the options that the middlewares of all transports have.
type Settings struct {
	Store              *idempotency.Store
	Via                string // the entry, for records
	ShowNote           bool
	Scoped             bool // Options.Scope is set
	FailOpen           bool
	MaxResponse        int
	Wait, StoreTimeout time.Duration
}

// Complete fills in defaults, and returns an error for a setting that is out of range. Usual is the
// default of MaxResponse if the store records as much. Head is the part of the store's MaxResult, in
// bytes, that is reserved for what is recorded besides a response's body.
func (s *Settings) Complete(usual, head int) error {
	if s.Store == nil {
		return errors.New("the store is nil")
	}
	store := s.Store.Options()
	most := store.MaxResult - head
	s.MaxResponse = cmp.Or(s.MaxResponse, min(usual, most))
	s.StoreTimeout = cmp.Or(s.StoreTimeout, 5*time.Second)
	switch {
	case s.FailOpen && store.OnLost == idempotency.Refuse:
		return errors.New("Options.FailOpen runs handlers without a claim, and the store's OnLost is Refuse, which forbids it: leave out one of them")
	case !s.Scoped && !store.SingleTenant:
		return errors.New("Options.Scope is nil, and the store has several tenants (idempotency.Options.SingleTenant)")
	case s.MaxResponse < 0 || s.MaxResponse > most:
		return fmt.Errorf("Options.MaxResponse %d is not between 0 and %d, the store's MaxResult less %d bytes", s.MaxResponse, most, head)
	case s.Wait < 0 || s.Wait > maxTime:
		return fmt.Errorf("Options.Wait %v is not between 0 and %v", s.Wait, maxTime)
	case s.StoreTimeout < 0 || s.StoreTimeout > maxTime:
		return fmt.Errorf("Options.StoreTimeout %v is not between 0 and %v", s.StoreTimeout, maxTime)
	}
	return nil
}

// Invalid returns the idempotency.ErrInvalid of a constructor: what was attempted, and the reason.
func Invalid(attempted string, reason error) error {
	return invalid{fmt.Errorf("%s: %w", attempted, reason)}
}

type invalid struct{ error }

func (invalid) Is(target error) bool { return target == idempotency.ErrInvalid }

// Begin begins the request with key k, within Wait and StoreTimeout. While etcd is known to be away, it does
// not wait for etcd: see package silence. It returns an error as Store.Begin does, such as concurrency.ErrUnavailable. The attempt is for Run; an
// error is for Refuse. The options in each count less than the middleware's own.
func (s Settings) Begin(ctx context.Context, k idempotency.Key, payload any, each []idempotency.Option, own ...idempotency.Option) (*idempotency.Attempt, *idempotency.Outcome, error) {
	opts := append(slices.Clip(each), idempotency.Via(s.Via), idempotency.Wait(s.Wait), idempotency.OnError(onError), silence.Bound[idempotency.Option](s.StoreTimeout))
	ctx, cancel := silence.Within(ctx, s.Wait+s.StoreTimeout)
	defer cancel()
	if !s.FailOpen {
		return s.Store.Begin(ctx, k, payload, append(opts, own...)...)
	}
	var run unclaimed.Run
	a, out, err := s.Store.Begin(ctx, k, payload, append(append(opts, own...), unclaimed.Keep[idempotency.Option](&run))...)
	if run != nil {
		err = &openError{err, run}
	}
	return a, out, err
}
