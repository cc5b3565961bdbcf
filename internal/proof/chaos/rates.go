package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// limitedRate is one rate of the workload.
type limitedRate struct {
	name  string
	rates []concurrency.Rate // SetRate sets each of them; the first is that of the programs
}

// Rates is the Workload for concurrency.RateLimiter: rates that are divided into shares, one whose tokens are stored in etcd,
// and one that changes.
type Rates struct{ all []limitedRate }

// NewRates returns the rates.
func NewRates() *Rates {
	return &Rates{all: []limitedRate{
		{name: "divided", rates: []concurrency.Rate{{PerSecond: 12, Burst: 6}}},
		{name: "stored", rates: []concurrency.Rate{{PerSecond: 0.8, Burst: 3}}},
		{name: "changed", rates: []concurrency.Rate{{PerSecond: 4, Burst: 3}, {PerSecond: 10, Burst: 8}}},
	}}
}

// Name implements Workload.
func (*Rates) Name() string { return "rates" }

// Queues implements Workload.
func (s *Rates) Queues(space keyspace.Space) (queues []keyspace.Queue) {
	for _, l := range s.all {
		queues = append(queues, space.Queue(keyspace.Rate, l.name))
	}
	return queues
}

func (l limitedRate) gate() string { return "rate/" + l.name }

func (l limitedRate) on(p *Process) (*concurrency.RateLimiter, error) {
	s, err := p.Kit()
	if err != nil {
		return nil, err
	}
	return concurrency.NewRateLimiter(s, l.name, l.rates[0], &concurrency.RateLimiterOptions{AdoptRate: len(l.rates) > 1})
}

// event is the call of an operation, with the rate that is asked for.
func (l limitedRate) event(name string, r concurrency.Rate) history.Event {
	return history.Event{Name: name, Gate: l.gate(), Attr: map[string]string{
		"persecond": strconv.FormatFloat(r.PerSecond, 'g', -1, 64), "burst": strconv.Itoa(r.Burst),
	}}
}

// Plan implements Workload.
func (s *Rates) Plan(r *rand.Rand) Operation {
	l := s.all[r.IntN(len(s.all))]
	bound := time.Duration(100+r.IntN(1500)) * time.Millisecond
	if r.IntN(25) == 0 && len(l.rates) > 1 {
		return l.set(l.rates[r.IntN(len(l.rates))], bound)
	}
	n, wait := 1+r.IntN(8), r.IntN(2) == 0
	return Operation{Name: history.RateTake + " " + l.name, Do: func(ctx context.Context, p *Process) (err error) {
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		for range n {
			if err = l.take(ctx, p, wait); errors.Is(err, concurrency.ErrRateExceeded) {
				return nil
			} else if err != nil {
				return err
			}
		}
		return nil
	}}
}

// take takes one token: by Wait, or by Allow. With an error it has taken none.
func (l limitedRate) take(ctx context.Context, p *Process, wait bool) error {
	of, err := l.on(p)
	if err != nil {
		return err
	}
	e := l.event(history.RateTake, l.rates[0])
	e.Until = deadline(ctx)
	c := p.rec.Call(e)
	if wait {
		err = of.Wait(ctx)
	} else {
		err = of.Allow()
	}
	c.Done(err, func(error) bool { return true })
	return err
}

func (l limitedRate) set(rate concurrency.Rate, bound time.Duration) Operation {
	return Operation{Name: history.RateSet + " " + l.name, Do: func(ctx context.Context, p *Process) error {
		of, err := l.on(p)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		return p.call(ctx, l.event(history.RateSet, rate), func() error { return of.SetRate(ctx, rate, concurrency.CreateLimit()) })
	}}
}

// Probe implements Workload: each rate gives a token.
func (s *Rates) Probe(ctx context.Context, p *Process) error {
	for _, l := range s.all {
		if err := l.take(ctx, p, true); err != nil {
			return fmt.Errorf("rate %s: %w", l.name, err)
		}
	}
	return nil
}
