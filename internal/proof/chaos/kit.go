package chaos

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/rank"
	"github.com/etcdkit/etcdkit/observe"
)

// openKit opens a session of this library for a process. Few requests wait in a run: so in every other
// process, by the seed, a request is far as soon as another waits before it.
func openKit(ctx context.Context, p *Process, client *embedtest.Client) (Session, error) {
	switch p.Env.Seed.Stream("far/" + p.Name).IntN(4) {
	case 0:
		ctx = rank.WithHorizon(ctx, rank.Tiny)
	case 1:
		ctx = rank.WithHorizon(ctx, rank.TinySample)
	}
	s, err := concurrency.NewSession(ctx, client.Client, namespace, &concurrency.SessionOptions{
		TTL: p.plan.ttl, Margin: p.plan.margin, Prefix: p.Env.Prefix, Owner: p.Name,
		MaxPermits: 64, ReportEvery: 300 * time.Millisecond, Hooks: p.hooks(), AllowProxy: p.plan.proxied,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Kit returns the process's session of this library. It returns an error while there
// is none.
func (p *Process) Kit() (*concurrency.Session, error) {
	if s, ok := p.Session().(*concurrency.Session); ok {
		return s, nil
	}
	return nil, errNoSession
}

// hooks count what becomes of sessions and calls, check that each call ends once, and return contexts of
// their own.
func (p *Process) hooks() []observe.Hooks {
	count := func(what string) { p.Env.Stats.Add(what, 1) }
	return []observe.Hooks{{
		Start: func(ctx context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
			count("hooks: " + string(c.Op))
			return context.WithValue(ctx, hookKey{}, c), p.Env.brackets.start(c)
		},
		Event: func(_ context.Context, e observe.Event) {
			switch e.(type) {
			case observe.Waiting:
				count("reports of waiting")
			case observe.SessionLost:
				count("sessions lost")
			case observe.SessionRecovered:
				count("sessions renewed")
			}
		},
	}}
}

type hookKey struct{}
