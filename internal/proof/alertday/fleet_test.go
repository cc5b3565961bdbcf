package alertday

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

// fleet is three processes that use all primitives, in the ways of the demos, and an exporter, each with a registry.
type fleet struct {
	testkit.Fixture
	ctx             context.Context // of the processes
	watching        context.Context // of the exporter
	sessions        []*concurrency.Session
	from            map[string]prometheus.Gatherer // by instance
	work, exporters sync.WaitGroup
	stop            func()                 // ends the work of the processes
	end             func()                 // ends all of it: the rules have the machine to themselves
	stopped         sync.Map               // names of jobs that no process calls any more
	ends            []*concurrency.Session // that end with the faults
}

// start starts the fleet, on an etcd of so many members. It ends with the test.
func start(t *testing.T, members int) *fleet {
	t.Helper()
	f := &fleet{Fixture: testkit.Own(t, members), from: map[string]prometheus.Gatherer{}}
	watching, cancel := context.WithCancel(context.Background())
	f.watching = watching
	ctx, stop := context.WithCancel(watching)
	f.ctx = ctx
	for n := range 3 {
		s, _ := f.process(fmt.Sprint("process-", n), nil)
		f.sessions = append(f.sessions, s)
		f.queues(s)
		f.web(s)
		f.rate(s)
		f.jobOf(s, "heartbeat", func(context.Context) error { return nil })
		f.requests(s, n)
		f.demos(s, n)
	}
	f.export(&exporter.Options{})
	f.stop = func() {
		stop()
		f.work.Wait()
	}
	f.end = func() {
		f.stop()
		cancel()
		f.exporters.Wait()
	}
	t.Cleanup(f.end)
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
	f.lead(s, "shard-7")
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

// web serves requests under a limit, by a middleware.
func (f *fleet) web(s *concurrency.Session) {
	lim, err := concurrency.NewKeyedLimiter(s, "web", 5, nil)
	require.NoError(f.T, err)
	mw, err := limithttp.Middleware(lim, limithttp.Options{
		Key:  func(*http.Request) (string, bool) { return "acme", true },
		Wait: time.Second, Patience: time.Second, Outage: limithttp.Open,
	})
	require.NoError(f.T, err)
	handler := mw(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(2 * time.Millisecond) }))
	f.loop(50*time.Millisecond, func() error {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(f.ctx, http.MethodGet, "/", nil))
		return nil
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

// precede samples the elections and the exporter once, as what was so at each of so many samples. What other series say of one
// moment, as of a wait on a busy machine, was not so all the time.
func (f *fleet) precede(r *recording, samples int) {
	f.T.Helper()
	r.begun = r.begun.Add(-time.Duration(samples) * every)
	f.record(r, 1)
	r.lasts("^etcdkit_exporter_up|^etcdkit_held.*election", samples-1)
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
