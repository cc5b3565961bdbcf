package chaos

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// openKit opens a session of this library for a process. Few requests wait in a run: so in every other
// process, by the seed, a request is far as soon as another waits before it.
func openKit(ctx context.Context, p *Process, client *embedtest.Client) (Session, error) {
	if p.Env.Seed.Stream("far/"+p.Name).IntN(2) == 0 {
		ctx = queue.WithHorizon(ctx, queue.Tiny)
	}
	s, err := concurrency.NewSession(ctx, client.Client, namespace, &concurrency.SessionOptions{
		TTL: p.plan.ttl, Margin: p.plan.margin, Prefix: p.Env.Prefix, Owner: p.Name,
		MaxPermits: 64, ReportEvery: 300 * time.Millisecond, Trace: p.trace(),
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

// trace counts what becomes of sessions.
func (p *Process) trace() *concurrency.Trace {
	return &concurrency.Trace{
		Waiting:        func(concurrency.WaitInfo) { p.Env.Stats.Add("reports of waiting", 1) },
		SessionLost:    func(clientv3.LeaseID, error) { p.Env.Stats.Add("sessions lost", 1) },
		SessionRenewed: func(clientv3.LeaseID) { p.Env.Stats.Add("sessions renewed", 1) },
	}
}
