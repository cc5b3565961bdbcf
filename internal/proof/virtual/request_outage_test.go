package virtual

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A Begin that ends with its ctx while etcd does not answer says since when, and if it has seen the
// request; one that has waited for an attempt, with an etcd that answers, does not.
func TestBeginInAnOutage(t *testing.T) {
	for how, away := range aways {
		for name, c := range map[string]struct {
			busy bool
			opts []idempotency.Option
			from time.Duration // below 0: no outage
		}{
			"new":                          {},
			"new, claimed without a read":  {opts: []idempotency.Option{idempotency.LikelyNew()}},
			"in progress":                  {busy: true},
			"in progress, away meanwhile":  {busy: true, from: 10 * time.Second},
			"in progress, etcd answers":    {busy: true, from: -1},
			"in progress, away at the end": {busy: true, from: 40*time.Second - 300*time.Millisecond},
		} {
			t.Run(name+", etcd "+how, func(t *testing.T) {
				bubble(t, 2, func(t *testing.T, on []*desk) {
					a, b := on[0].store(), on[1].store()
					if c.busy {
						_, _, err := a.Begin(t.Context(), payment, nil)
						require.NoError(t, err)
					}
					begun, errs := time.Now(), make(chan error, 2)
					if c.from >= 0 {
						time.AfterFunc(c.from, func() { away(on[1].client) })
					}
					time.Sleep(time.Nanosecond)
					ctx := within(t, 40*time.Second)
					for range 2 { // one asks etcd, the other waits for that one
						go func() {
							_, _, err := b.Begin(ctx, payment, nil, c.opts...)
							errs <- err
						}()
					}
					for range 2 {
						err := <-errs
						require.ErrorIs(t, err, context.DeadlineExceeded)
						require.Equal(t, !c.busy || c.from == 0, errors.Is(err, idempotency.ErrUnseen), "%v", err)
						var u *concurrency.UnavailableError
						if c.from < 0 || c.from > 30*time.Second && how == "swallows" { // half a second of silence says nothing yet
							require.NotErrorIs(t, err, concurrency.ErrUnavailable)
							continue
						}
						require.ErrorAs(t, err, &u)
						require.ErrorIs(t, err, concurrency.ErrUnavailable)
						require.WithinRange(t, u.Since, begun.Add(c.from), begun.Add(c.from+ttl+time.Second))
					}
				})
			})
		}
	}
}
