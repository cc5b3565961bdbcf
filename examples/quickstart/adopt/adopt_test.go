// Package adopt has the code of docs/adopt.md: how a service sets each package up.
package adopt

import (
	"context"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/aesgcm"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/crontab"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// open is what all packages share.
func open(ctx context.Context, endpoints []string, logger *zap.Logger, pod string) (*clientv3.Client, *concurrency.Session, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints, // all members
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		Logger:               logger.Named("etcd").WithOptions(zap.IncreaseLevel(zapcore.ErrorLevel)),
	})
	if err != nil {
		return nil, nil, err
	}
	opening, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	sess, err := concurrency.NewSession(opening, client, "payments", &concurrency.SessionOptions{
		Owner:  pod, // what operators see
		Logger: logger.Named("etcdkit"),
	})
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return client, sess, nil
}

// stop is its end.
func stop(client *clientv3.Client, sess *concurrency.Session) {
	closing, cancel := context.WithTimeout(context.Background(), 20*time.Second) // less than the supervisor allows
	defer cancel()
	if err := sess.Close(closing); err != nil {
		log.Print(err) // some work was interrupted, or the lease was not revoked and expires
	}
	go client.Close() // after the session; it can hang
}

// session is a service's on an embedded etcd.
func session(t *testing.T) *concurrency.Session {
	client, sess, err := open(t.Context(), embedtest.Start(t, nil).Endpoints(), zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), "pod-1")
	require.NoError(t, err)
	t.Cleanup(func() { stop(client, sess) })
	return sess
}

// chargeOne holds one of ten permits of the fleet, waits for it for two seconds and holds it for a minute at most.
func chargeOne(ctx context.Context, sess *concurrency.Session, order string, charge func(context.Context, *concurrency.Permit) error) error {
	sem, err := concurrency.NewSemaphore(sess, "charge", 10, &concurrency.SemaphoreOptions{AdoptLimit: true})
	if err != nil {
		return err
	}
	return sem.Do(ctx, charge, concurrency.Wait(2*time.Second), concurrency.MaxHold(time.Minute), concurrency.Note(order))
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	charged := false
	require.NoError(t, chargeOne(t.Context(), session(t), "order 17", func(ctx context.Context, p *concurrency.Permit) error {
		charged = true
		return ctx.Err()
	}))
	require.True(t, charged)
}

// limitTenants is five requests of each tenant at a time, 200 in total.
func limitTenants(sess *concurrency.Session, tenant func(*http.Request) (string, bool), outage func(error), report func(*http.Request, error)) (func(http.Handler) http.Handler, error) {
	lim, err := concurrency.NewKeyedLimiter(sess, "api", 5, &concurrency.KeyedLimiterOptions{Total: 200, AdoptLimit: true})
	if err != nil {
		return nil, err
	}
	return limithttp.Middleware(lim, limithttp.Options{
		Key:         tenant,                 // authenticated
		Wait:        500 * time.Millisecond, // then 429 or 503
		OnOutage:    outage,
		ReportError: report,
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	limited, err := limitTenants(session(t), func(r *http.Request) (string, bool) { return "acme", true },
		func(err error) { t.Error(err) }, func(r *http.Request, err error) { t.Error(r.URL, err) })
	require.NoError(t, err)
	w := httptest.NewRecorder()
	limited(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusNotFound, w.Code)
}

// nightly is a job for a cron library.
func nightly(sess *concurrency.Session, line string, berlin *time.Location, invoices schedlock.Func, done func(schedlock.Result, error), lost func(schedlock.Record)) (*schedlock.Job, error) {
	lk, err := schedlock.New(sess, &schedlock.Options{Done: done, Lost: lost}) // in all processes
	if err != nil {
		return nil, err
	}
	nights, err := crontab.Parse(line, berlin) // "30 2 * * *"
	if err != nil {
		return nil, err
	}
	return lk.Job("invoices", nights, invoices, schedlock.AtMost(time.Hour))
}

func TestJobs(t *testing.T) {
	t.Parallel()
	ended := make(chan schedlock.Result, 100)
	job, err := nightly(session(t), "* * * * *", time.UTC, func(ctx context.Context, r *schedlock.Run) error { return ctx.Err() },
		func(r schedlock.Result, err error) { ended <- r }, func(r schedlock.Record) { t.Error(r) })
	require.NoError(t, err)
	require.Eventually(t, func() bool { job.Run(); return len(ended) > 0 }, 30*time.Second, 10*time.Millisecond)
}

// payOnce executes each payment once, encrypts its response, and leaves what is unknown to an operator.
func payOnce(sess *concurrency.Session, key, secret []byte, tenant func(*http.Request) string, order func(*http.Request, []byte) string, report func(*http.Request, error)) (func(http.Handler) http.Handler, error) {
	codec, err := aesgcm.New("2026-01", key) // 32 random bytes from your store of secrets, and their name
	if err != nil {
		return nil, err
	}
	store, err := idempotency.NewStore(sess, "payments", &idempotency.Options{
		OnLost:      idempotency.Refuse, // if the provider takes no keys
		MaxPerScope: 10_000,             // records kept: new requests of a tenant in Retain, 24 h
		Codec:       codec,
		Secret:      secret, // the same in all processes
	})
	if err != nil {
		return nil, err
	}
	return idemhttp.Middleware(store, &idemhttp.Options{Scope: tenant, Note: order, ReportError: report})
}

func TestPayments(t *testing.T) {
	t.Parallel()
	key := []byte("a key of a test, of 32 bytes, no")
	once, err := payOnce(session(t), key, []byte("a secret of a test"), func(*http.Request) string { return "acme" },
		func(r *http.Request, body []byte) string { return string(body) }, func(r *http.Request, err error) { t.Error(r.URL, err) })
	require.NoError(t, err)
	charges := 0
	h := once(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { charges++ }))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("order 17"))
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
	}
	require.Equal(t, 1, charges)
}
