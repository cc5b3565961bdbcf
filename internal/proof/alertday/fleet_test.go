package alertday

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/promkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// fleet is three processes that use all primitives, and an exporter, each with a registry.
type fleet struct {
	testkit.Fixture
	ctx      context.Context
	sessions []*concurrency.Session
	from     map[string]prometheus.Gatherer
	work     sync.WaitGroup
	jobless  atomic.Bool // no process calls the job
}

// start starts the fleet. It ends with the test.
func start(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{Fixture: testkit.Own(t, 1), from: map[string]prometheus.Gatherer{}}
	ctx, cancel := context.WithCancel(context.Background())
	f.ctx = ctx
	for n := range 3 {
		reg := prometheus.NewRegistry()
		hooks, err := promkit.New(reg, nil)
		require.NoError(t, err)
		s, _ := f.Session(&concurrency.SessionOptions{Hooks: []observe.Hooks{hooks, {Event: panics}}})
		f.sessions = append(f.sessions, s)
		f.from[fmt.Sprint("process-", n)] = reg
		f.queues(s)
		f.rate(s)
		f.job(s)
		f.requests(s, n)
	}
	reg := prometheus.NewRegistry()
	exp, err := exporter.New(f.NewClient(t, nil).Client, "test", &exporter.Options{Prefix: f.Root, Probe: 200 * time.Millisecond})
	require.NoError(t, err)
	reg.MustRegister(exp)
	f.from["exporter"] = reg
	f.work.Go(func() { _ = exp.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		f.work.Wait()
	})
	return f
}

// loop calls fn, with a pause after each call, until the fleet ends. Its errors are those of faults: they are in the
// metrics.
func (f *fleet) loop(pause time.Duration, fn func() error) {
	f.work.Go(func() {
		for f.ctx.Err() == nil {
			_ = fn()
			select {
			case <-time.After(pause):
			case <-f.ctx.Done():
			}
		}
	})
}

// panics is a hook with a mistake.
func panics(_ context.Context, e observe.Event) {
	if changed, ok := e.(observe.LimitChanged); ok && changed.To == unlucky {
		panic("the limit is 13")
	}
}

// unlucky is the limit at which the hook panics.
const unlucky = 13

// busy is the work under a permit.
func busy(context.Context, *concurrency.Permit) error {
	time.Sleep(2 * time.Millisecond)
	return nil
}

// queues keeps a semaphore, a mutex, an election and a limiter busy: requests always wait, for milliseconds.
func (f *fleet) queues(s *concurrency.Session) {
	charge, err := concurrency.NewSemaphore(s, "charge", 3, nil)
	require.NoError(f.T, err)
	report, err := concurrency.NewMutex(s, "report")
	require.NoError(f.T, err)
	shard, err := concurrency.NewElection(s, "shard-7")
	require.NoError(f.T, err)
	api, err := concurrency.NewKeyedLimiter(s, "api", 2, &concurrency.KeyedLimiterOptions{Total: 5})
	require.NoError(f.T, err)
	for range 2 {
		f.loop(5*time.Millisecond, func() error { return charge.Do(f.ctx, busy) })
	}
	f.loop(20*time.Millisecond, func() error { return report.Do(f.ctx, busy) })
	f.loop(20*time.Millisecond, func() error {
		p, err := report.TryLock(f.ctx)
		if err == nil {
			err = p.Release(f.ctx)
		}
		return err
	})
	f.loop(time.Second, func() error {
		return shard.Lead(f.ctx, func(ctx context.Context, _ *concurrency.Permit) error { <-ctx.Done(); return ctx.Err() })
	})
	for _, tenant := range []string{"a", "b"} {
		f.loop(10*time.Millisecond, func() error { return api.Key(tenant).Do(f.ctx, busy) })
	}
}

// mails is a rate.
var mails = concurrency.Rate{PerSecond: 100, Burst: 30}

// rate uses three quarters of a rate.
func (f *fleet) rate(s *concurrency.Session) {
	mail, err := concurrency.NewRateLimiter(s, "mail", mails, nil)
	require.NoError(f.T, err)
	f.loop(40*time.Millisecond, func() error { return mail.Wait(f.ctx) })
}

// job runs a job every fifth sample.
func (f *fleet) job(s *concurrency.Session) {
	l, err := schedlock.New(s, nil)
	require.NoError(f.T, err)
	period := 5 * every
	f.loop(period/10, func() error {
		if f.jobless.Load() {
			return nil
		}
		_, err := l.Do(f.ctx, "heartbeat", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Every(period))
		return err
	})
}

// requests executes requests, and repeats each once.
func (f *fleet) requests(s *concurrency.Session, process int) {
	orders, err := idempotency.NewStore(s, "orders", nil)
	require.NoError(f.T, err)
	n := 0
	f.loop(30*time.Millisecond, func() error {
		n++
		key := idempotency.Key{Scope: "shop", Op: "pay", ID: fmt.Sprint(process, "-", n/2)}
		_, err := idempotency.Do(f.ctx, orders, key, "payload", func(context.Context, *idempotency.Attempt) (int, error) { return n, nil })
		return err
	})
}

// record samples the fleet.
func (f *fleet) record(r *recording, samples int) {
	f.T.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range samples {
		<-tick.C
		r.sample(f.T, f.from)
	}
}
