package alertday

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/promkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// process starts a process, whose label instance is its name.
func (f *fleet) process(name string, opts *concurrency.SessionOptions) (*concurrency.Session, *embedtest.Client) {
	f.T.Helper()
	var o concurrency.SessionOptions
	if opts != nil {
		o = *opts
	}
	reg := prometheus.NewRegistry()
	hooks, err := promkit.New(reg, nil)
	require.NoError(f.T, err)
	o.Hooks = []observe.Hooks{hooks, {Event: panics}}
	f.from[name] = reg
	return f.Session(&o)
}

// export starts an exporter, in place of the one before.
func (f *fleet) export(opts *exporter.Options) {
	f.T.Helper()
	o := *opts
	o.Prefix, o.Probe = f.Root, cmp.Or(o.Probe, time.Second) // which a busy machine answers in time
	reg := prometheus.NewRegistry()
	exp, err := exporter.New(f.NewClient(f.T, nil).Client, "test", &o)
	require.NoError(f.T, err)
	reg.MustRegister(exp)
	f.from["exporter"] = reg
	f.exporters.Go(func() { _ = exp.Run(f.watching) })
}

// revoke ends the lease of a session.
func (f *fleet) revoke(s *concurrency.Session) {
	f.T.Helper()
	require.NoError(f.T, f.RevokeLease(f.ctx, s.Lease()))
}

// sleep waits, and no longer than the fleet lives.
func (f *fleet) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-f.ctx.Done():
	}
}

func (f *fleet) semaphore(s *concurrency.Session, name string, limit int) *concurrency.Semaphore {
	f.T.Helper()
	sem, err := concurrency.NewSemaphore(s, name, limit, nil)
	require.NoError(f.T, err)
	return sem
}

// limiter returns a limiter of one request for each key.
func (f *fleet) limiter(s *concurrency.Session, name string) *concurrency.KeyedLimiter {
	f.T.Helper()
	lim, err := concurrency.NewKeyedLimiter(s, name, 1, nil)
	require.NoError(f.T, err)
	return lim
}

// rateOf returns a rate of five per second.
func (f *fleet) rateOf(name string) *concurrency.RateLimiter {
	f.T.Helper()
	rate, err := concurrency.NewRateLimiter(f.sessions[0], name, concurrency.Rate{PerSecond: 5, Burst: 5}, nil)
	require.NoError(f.T, err)
	return rate
}

// acquire acquires a permit of a semaphore, and keeps it.
func (f *fleet) acquire(sem *concurrency.Semaphore, opts ...concurrency.AcquireOption) *concurrency.Permit {
	f.T.Helper()
	p, err := sem.Acquire(f.ctx, opts...)
	require.NoError(f.T, err)
	return p
}

// lead campaigns for an election, and leads until the fleet or the session ends.
func (f *fleet) lead(s *concurrency.Session, name string) {
	f.T.Helper()
	e, err := concurrency.NewElection(s, name)
	require.NoError(f.T, err)
	f.loop(every, func() error {
		return e.Lead(f.ctx, func(ctx context.Context, _ *concurrency.Permit) error { <-ctx.Done(); return ctx.Err() })
	})
}

// jobOf runs a job every fifth sample, until stopJob.
func (f *fleet) jobOf(s *concurrency.Session, name string, fn func(context.Context) error, opts ...schedlock.CallOption) {
	f.T.Helper()
	l, err := schedlock.New(s, nil)
	require.NoError(f.T, err)
	period := 5 * every
	opts = append(opts, schedlock.Every(period))
	f.loop(period/10, func() error {
		if _, stopped := f.stopped.Load(name); stopped {
			return nil
		}
		_, err := l.Do(f.ctx, name, func(ctx context.Context, _ *schedlock.Run) error { return fn(ctx) }, opts...)
		return err
	})
}

// stopJob has no process call a job any more.
func (f *fleet) stopJob(name string) { f.stopped.Store(name, true) }

// endPrepared closes the sessions that a fault has prepared.
func (f *fleet) endPrepared() {
	for _, s := range f.ends {
		ctx, cancel := context.WithTimeout(f.ctx, every)
		_ = s.Close(ctx)
		cancel()
	}
	f.ends = nil
}

func (f *fleet) store(s *concurrency.Session, name string, opts *idempotency.Options) *idempotency.Store {
	f.T.Helper()
	st, err := idempotency.NewStore(s, name, opts)
	require.NoError(f.T, err)
	return st
}

func key(id string) idempotency.Key { return idempotency.Key{Scope: "shop", Op: "pay", ID: id} }

// pay sends ten requests a sample, with the key and the payload that next returns.
func (f *fleet) pay(st *idempotency.Store, next func(n int) (id string, payload any)) {
	n := 0
	f.loop(every/10, func() error {
		id, payload := next(n)
		n++
		_, err := idempotency.Do(f.ctx, st, key(id), payload, func(context.Context, *idempotency.Attempt) (int, error) { return n, nil })
		return err
	})
}

// leave begins attempts in a process that loses its lease, and returns the store in another process.
func (f *fleet) leave(name string, policy idempotency.LostPolicy, attempts int) *idempotency.Store {
	f.T.Helper()
	opts := &idempotency.Options{OnLost: policy}
	s, _ := f.process(name, nil)
	st := f.store(s, name, opts)
	for n := range attempts {
		_, _, err := st.Begin(f.ctx, key(fmt.Sprint(n)), "x")
		require.NoError(f.T, err)
	}
	f.revoke(s)
	return f.store(f.sessions[0], name, opts)
}
