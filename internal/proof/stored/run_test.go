package stored

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/crontab"
)

type written = Written

// own starts an etcd. Some values have keys, and so the prefix.
func own(t *testing.T) testkit.Fixture {
	t.Helper()
	f := testkit.Own(t, 1)
	f.Root = "/etcdkit/"
	return f
}

// fullRun uses everything that stores something, and returns what was put. Each pair of key and lease is there once, with its
// last value. The sessions live until the test ends.
func fullRun(t *testing.T, f testkit.Fixture) []written {
	t.Helper()
	ctx := testkit.Context(t)
	tap := f.Client().Watch(ctx, f.Root, clientv3.WithPrefix(), clientv3.WithRev(1))
	web := f.SessionOn(f.Client(), named("web-1"))
	operator := f.SessionOn(f.Client(), named("operator"))
	permits(t, f, web, operator)
	limiters(t, web)
	rates(t, web)
	jobs(t, f, web, operator)
	requests(t, web)
	changes(t, operator)
	theRest(t, f, web, operator)
	end, err := f.Client().Put(ctx, web.NamespacePrefix()+"end", "")
	require.NoError(t, err)
	var all []written
	at := map[string]int{}
	for revision := int64(0); revision < end.Header.Revision; {
		resp, open := <-tap
		require.True(t, open)
		for _, ev := range resp.Events {
			revision = ev.Kv.ModRevision
			key := strings.TrimPrefix(string(ev.Kv.Key), web.NamespacePrefix())
			n, known := at[key]
			switch {
			case key == "end":
			case ev.Type == clientv3.EventTypeDelete:
				all[n].Live = false
			case known && all[n].Lease == ev.Kv.Lease && all[n].Live:
				all[n].Value, all[n].Rev = string(ev.Kv.Value), revision
			default:
				if known {
					all[n].Live = false
				}
				at[key] = len(all)
				all = append(all, written{key, ev.Kv.Lease, revision, string(ev.Kv.Value), true})
			}
		}
	}
	return all
}

func named(owner string) *concurrency.SessionOptions {
	return &concurrency.SessionOptions{Owner: owner, TTL: 300 * time.Second}
}

// permits uses semaphores, a mutex and an election. At its end two of three permits of charge are held, and ingest has a leader.
func permits(t *testing.T, f testkit.Fixture, web, operator *concurrency.Session) {
	t.Helper()
	ctx := testkit.Context(t)
	charge, err := concurrency.NewSemaphore(web, "charge", 3, nil)
	require.NoError(t, err)
	_, err = charge.Acquire(ctx, concurrency.ID("order-17"), concurrency.Note("card"), concurrency.MaxHold(time.Hour))
	require.NoError(t, err)
	gone, err := charge.Acquire(ctx, concurrency.Weight(2), concurrency.ID("stuck"))
	require.NoError(t, err)
	there, err := concurrency.NewSemaphore(operator, "charge", 3, nil)
	require.NoError(t, err)
	require.NoError(t, there.Evict(ctx, "stuck", "it hangs"))
	testkit.Closed(t, gone.Context().Done(), "the eviction arrives")
	_, err = charge.TryAcquire(ctx)
	require.NoError(t, err)
	require.NoError(t, there.SetLimit(ctx, 2))

	rest, err := concurrency.NewSemaphore(web, "heavy", 5, nil)
	require.NoError(t, err)
	_, err = rest.Acquire(ctx, concurrency.Weight(4))
	require.NoError(t, err)

	mu, err := concurrency.NewMutex(web, "migrate")
	require.NoError(t, err)
	_, err = mu.Lock(ctx, concurrency.ID("m-1"))
	require.NoError(t, err)

	el, err := concurrency.NewElection(web, "ingest")
	require.NoError(t, err)
	term, err := el.Campaign(ctx, concurrency.Note("10.0.0.7:8080"), concurrency.ID("e-1"))
	require.NoError(t, err)
	asks, err := concurrency.NewElection(operator, "ingest")
	require.NoError(t, err)
	_, err = asks.StepDown(ctx, "move")
	require.NoError(t, err)
	testkit.Closed(t, term.StopRequested().Done(), "the request arrives")

	shared, err := concurrency.NewSemaphore(web, "shared", 4, nil)
	require.NoError(t, err)
	lim, err := concurrency.NewKeyedLimiter(web, "shared", 1, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(t, err)
	for _, l := range []concurrency.Limiter{concurrency.Single(shared), lim} {
		_, err := limithttp.Middleware(l, limithttp.Options{Outage: limithttp.Share, Key: func(*http.Request) (string, bool) { return "all", true }})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return len(f.Keys("/sharing/")) == 2 }, testkit.Soon, 10*time.Millisecond)
}

// limiters uses a limiter with a total. At its end tenant-7 has its only permit.
func limiters(t *testing.T, web *concurrency.Session) {
	t.Helper()
	ctx := testkit.Context(t)
	lim, err := concurrency.NewKeyedLimiter(web, "api", 2, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(t, err)
	require.NoError(t, lim.Key("tenant-7").SetLimit(ctx, 1, concurrency.CreateLimit()))
	_, err = lim.Key("tenant-7").Acquire(ctx, concurrency.ID("call-1"))
	require.NoError(t, err)
	_, err = lim.Key("tenant-8").Acquire(ctx, concurrency.Weight(2))
	require.NoError(t, err)
}

// rates uses a rate, and a slow one, which has no token at the end.
func rates(t *testing.T, web *concurrency.Session) {
	t.Helper()
	ctx := testkit.Context(t)
	mail, err := concurrency.NewRateLimiter(web, "mail", concurrency.Rate{PerSecond: 50, Burst: 5}, nil)
	require.NoError(t, err)
	require.NoError(t, mail.Wait(ctx))
	slow, err := concurrency.NewRateLimiter(web, "seldom", concurrency.Rate{PerSecond: 1e-4, Burst: 1}, nil)
	require.NoError(t, err)
	require.NoError(t, slow.Wait(ctx))
}

var friday = time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)

// jobs uses jobs. At its end invoices has run and is active, sweep is paused, and the one run of nightly was lost.
func jobs(t *testing.T, f testkit.Fixture, web, operator *concurrency.Session) {
	t.Helper()
	ctx := testkit.Context(t)
	opts := &schedlock.Options{Keep: 2, Now: func() time.Time { return friday.Add(time.Hour) }}
	lk, err := schedlock.New(web, opts)
	require.NoError(t, err)
	control, err := schedlock.New(operator, opts)
	require.NoError(t, err)
	retired := f.SessionOn(f.Client(), named("web-0"))
	former, err := schedlock.New(retired, opts)
	require.NoError(t, err)
	_, err = former.Do(ctx, "retired", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(friday))
	require.NoError(t, err)
	require.NoError(t, retired.Close(ctx))
	require.NoError(t, control.Forget(ctx, "retired"))
	for n := range 4 {
		tick := friday.Add(time.Duration(n-4) * time.Hour)
		res, err := lk.Do(ctx, "invoices", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(tick))
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
	}
	started, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		_, _ = lk.Do(context.WithoutCancel(ctx), "invoices", func(ctx context.Context, _ *schedlock.Run) error {
			close(started)
			select {
			case <-done:
			case <-ctx.Done():
			}
			return nil
		}, schedlock.Tick(friday))
	}()
	testkit.Closed(t, started, "the run starts")

	_, err = lk.Do(ctx, "sweep", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(friday), schedlock.AtLeast(time.Hour))
	require.NoError(t, err)
	require.NoError(t, control.Pause(ctx, "sweep", "maintenance"))
	_, err = control.RequestRun(ctx, "sweep", "to see")
	require.NoError(t, err)

	planned, err := crontab.Parse("0 9 * * *", time.UTC)
	require.NoError(t, err)
	job, err := lk.Job("reports", planned, func(context.Context, *schedlock.Run) error { return nil })
	require.NoError(t, err)
	job.Next(friday) // as its cron library does
	require.Eventually(t, func() bool {
		return len(f.Keys("/plan")) > 0 && len(f.Keys("/jobs-of/")) > 0 && len(f.Keys("/clock/")) > 0
	}, testkit.Soon, 10*time.Millisecond)
	lost(t, f, lk, opts)
}

// lost loses a run with its process, and has lk report that.
func lost(t *testing.T, f testkit.Fixture, lk *schedlock.Locker, opts *schedlock.Options) {
	t.Helper()
	ctx := testkit.Context(t)
	dies := f.SessionOn(f.Client(), named("web-2"))
	other, err := schedlock.New(dies, opts)
	require.NoError(t, err)
	_, err = other.Do(ctx, "nightly", func(run context.Context, _ *schedlock.Run) error {
		require.NoError(t, f.RevokeLease(ctx, dies.Lease()))
		<-run.Done()
		return run.Err()
	}, schedlock.Tick(friday.Add(-time.Hour)))
	require.Error(t, err)
	_, err = lk.Do(ctx, "nightly", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(friday))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(f.Keys("nightly/reported-loss")) > 0 }, testkit.Soon, 10*time.Millisecond)
}

// requests uses a store. At its end there is an outcome, a long one, one in progress with a recovery point, a lost one and a failed one.
func requests(t *testing.T, web *concurrency.Session) {
	t.Helper()
	ctx := testkit.Context(t)
	st, err := idempotency.NewStore(web, "orders", nil)
	require.NoError(t, err)
	for name, size := range map[string]int{"K-1": 10, "K-long": 300 << 10} {
		a, _, err := st.Begin(ctx, keyOf(name), "payload")
		require.NoError(t, err)
		require.NoError(t, a.Commit(ctx, []byte(strings.Repeat("r", size))))
	}
	a, _, err := st.Begin(ctx, keyOf("K-works"), "payload", idempotency.AlsoCompare("account"))
	require.NoError(t, err)
	_, err = idempotency.Step(a, "charge", func(context.Context) (string, error) { return "ch_1", nil })
	require.NoError(t, err)
	require.NoError(t, a.SetNote("at the bank"))
	a, _, err = st.Begin(ctx, keyOf("K-lost"), "payload", idempotency.OnLost(idempotency.Refuse))
	require.NoError(t, err)
	require.NoError(t, a.Abandon(ctx))
	_, err = idempotency.Do(ctx, st, keyOf("K-failed"), "payload", func(context.Context, *idempotency.Attempt) (string, error) {
		return "", idempotency.Permanent(errors.New("card refused"))
	})
	require.Error(t, err)
}

// changes has an operator change something in the console.
func changes(t *testing.T, operator *concurrency.Session) {
	t.Helper()
	h, err := console.Handler(operator, &console.Options{
		Authorize: func(*http.Request, console.Action) error { return nil },
		Actor:     func(*http.Request) string { return "ann" },
	})
	require.NoError(t, err)
	form := url.Values{"do": {"set-limit"}, "name": {"limiter/api/key/tenant-8"}, "confirm": {"limiter/api/key/tenant-8"}, "value": {"3"}, "reason": {"more replicas"}}
	r := httptest.NewRequestWithContext(testkit.Context(t), http.MethodPost, "http://localhost/action", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
}

func keyOf(id string) idempotency.Key {
	return idempotency.Key{Scope: "tenant-7", Op: "POST /payments", ID: id}
}

// patternOf returns a key with its own parts left out, for messages.
func patternOf(w written) string { return fmt.Sprintf("%s (lease %t)", w.Key, w.Lease != 0) }
