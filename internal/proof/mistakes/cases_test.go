package mistakes

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// fixture is a program that works, and in which one mistake at a time is made.
type fixture struct {
	t      testing.TB
	prefix string
	client *embedtest.Client
	sess   *concurrency.Session
	closed *concurrency.Session
	denied *clientv3.Client // of a user that may write elsewhere
	store  *idempotency.Store
	locker *schedlock.Locker
}

func newFixture(t testing.TB) *fixture {
	c := embedtest.Shared(t)
	f := &fixture{t: t, prefix: c.Prefix(t), client: c.NewClient(t, nil)}
	f.sess = testkit.SessionOn(t, f.client.Client, f.prefix, nil)
	f.closed = testkit.SessionOn(t, f.client.Client, f.prefix, nil)
	require.NoError(t, f.closed.Close(testkit.Context(t)))
	var err error
	f.store, err = idempotency.NewStore(f.sess, "payments", nil)
	require.NoError(t, err)
	f.locker, err = schedlock.New(f.sess, nil)
	require.NoError(t, err)

	auth := embedtest.Start(t, nil)
	if auth.External() {
		t.Skip("it enables authentication")
	}
	ctx := testkit.Context(t)
	require.NoError(t, auth.AddUser(ctx, "app", "secret", "/elsewhere/"))
	require.NoError(t, auth.EnableAuth(ctx, "root", "secret"))
	f.denied = auth.NewClient(t, &embedtest.ClientOptions{Username: "app", Password: "secret"}).Client
	return f
}

// at returns a client with that endpoint.
func (f *fixture) at(endpoint string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

// outage starts a session on an etcd that does not answer. The reason has to be in the error,
// so a machine on which that takes longer gets more time.
func (f *fixture) outage(endpoint string) (err error) {
	client := f.at(endpoint)
	for d := time.Second / 4; d < time.Minute; d *= 2 {
		ctx, cancel := context.WithTimeout(testkit.Context(f.t), d)
		_, err = concurrency.NewSession(ctx, client, "shop", nil)
		cancel()
		if err == nil || strings.Contains(err.Error(), "code = Unavailable") {
			break
		}
	}
	return err
}

func (f *fixture) session(client *clientv3.Client, namespace string, opts *concurrency.SessionOptions) error {
	s, err := concurrency.NewSession(soon(f.t), client, namespace, opts)
	if err == nil {
		_ = s.Close(soon(f.t))
	}
	return err
}

func (f *fixture) semaphore(s *concurrency.Session, name string, limit int) error {
	_, err := concurrency.NewSemaphore(s, name, limit, nil)
	return err
}

func (f *fixture) acquire(name string, limit int, opts ...concurrency.AcquireOption) error {
	sem, err := concurrency.NewSemaphore(f.sess, name, limit, nil)
	require.NoError(f.t, err)
	p, err := sem.Acquire(soon(f.t), opts...)
	if err == nil {
		_ = p.Release(soon(f.t))
	}
	return err
}

func (f *fixture) begin(key idempotency.Key, payload any) error {
	_, _, err := f.store.Begin(soon(f.t), key, payload)
	return err
}

func (f *fixture) do(name string, fn schedlock.Func, opts ...schedlock.CallOption) error {
	_, err := f.locker.Do(soon(f.t), name, fn, opts...)
	return err
}

// fromNow is a schedule that counts from the time at which it is asked.
type fromNow time.Duration

func (s fromNow) Next(t time.Time) time.Time { return t.Add(time.Duration(s)) }

func nothing(context.Context, *schedlock.Run) error { return nil }

// problem is the answer of a Middleware, as an error.
type problem string

func (p problem) Error() string { return string(p) }

// post sends a request with a key to a middleware.
func (f *fixture) post(opts *idemhttp.Options, key string) error {
	wrap, err := idemhttp.Middleware(f.store, opts)
	require.NoError(f.t, err)
	r := httptest.NewRequestWithContext(soon(f.t), http.MethodPost, "/charges", strings.NewReader("7 EUR"))
	r.Pattern = "POST /charges"
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
	body, _ := io.ReadAll(w.Result().Body)
	if w.Code < 300 {
		return nil
	}
	return problem(string(body))
}

// token takes a token of a rate.
func (f *fixture) token(name string, perSecond float64) error {
	rate, err := concurrency.NewRateLimiter(f.sess, name, concurrency.Rate{PerSecond: perSecond, Burst: 10}, nil)
	require.NoError(f.t, err)
	return rate.Wait(soon(f.t))
}

// limited makes a limiting middleware of a limiter without a total.
func (f *fixture) limited(opts limithttp.Options) error {
	lim, err := concurrency.NewKeyedLimiter(f.sess, "tenants", 5, nil)
	require.NoError(f.t, err)
	_, err = limithttp.Middleware(lim, opts)
	return err
}

func tenant(*http.Request) string { return "acme" }

var (
	key  = idempotency.Key{Scope: "acme", Op: "POST /charges", ID: "K-17"}
	less = func(change func(k *idempotency.Key)) idempotency.Key { k := key; change(&k); return k }
)

var mistakes = []mistake{
	{"No etcd runs at the endpoint.", `concurrency.NewSession(ctx, client, "shop", nil)`, func(f *fixture) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(f.t, err)
		require.NoError(f.t, l.Close())
		return f.outage(l.Addr().String())
	}, "new session", `"shop"`, "Endpoints"},
	{"The endpoint is another server.", `concurrency.NewSession(ctx, client, "shop", nil)`, func(f *fixture) error {
		other := httptest.NewServer(http.NotFoundHandler())
		f.t.Cleanup(other.Close)
		return f.outage(strings.TrimPrefix(other.URL, "http://"))
	}, "new session", `"shop"`, "Endpoints"},
	{"The role does not contain the prefix.", `concurrency.NewSession(ctx, client, "shop", nil)`, func(f *fixture) error {
		return f.session(f.denied, "shop", nil)
	}, "new session", `"shop"`, "etcdctl role grant-permission"},
	{"The client is nil.", `concurrency.NewSession(ctx, nil, "shop", nil)`, func(f *fixture) error {
		return f.session(nil, "shop", nil)
	}, "new session", `"shop"`, "client"},
	{"The namespace is empty.", `concurrency.NewSession(ctx, client, "", nil)`, func(f *fixture) error {
		return f.session(f.client.Client, "", nil)
	}, "new session", `""`, "namespace"},
	{"The TTL is too short.", `&concurrency.SessionOptions{TTL: time.Second}`, func(f *fixture) error {
		return f.session(f.client.Client, "shop", &concurrency.SessionOptions{TTL: time.Second})
	}, "new session", `"shop"`, "TTL"},
	{"The Margin is above the TTL.", `&concurrency.SessionOptions{TTL: 10 * time.Second, Margin: 20 * time.Second}`, func(f *fixture) error {
		return f.session(f.client.Client, "shop", &concurrency.SessionOptions{TTL: 10 * time.Second, Margin: 20 * time.Second})
	}, "new session", `"shop"`, "Margin"},

	{"The session is nil.", `concurrency.NewSemaphore(nil, "render", 3, nil)`, func(f *fixture) error {
		return f.semaphore(nil, "render", 3)
	}, "new semaphore", `"render"`, "session"},
	{"The name is empty.", `concurrency.NewSemaphore(sess, "", 3, nil)`, func(f *fixture) error {
		return f.semaphore(f.sess, "", 3)
	}, "new semaphore", `""`, "name"},
	{"The name contains a slash.", `concurrency.NewSemaphore(sess, "video/render", 3, nil)`, func(f *fixture) error {
		return f.semaphore(f.sess, "video/render", 3)
	}, "new semaphore", `"video/render"`, "'/'"},
	{"The limit is 0, which pauses.", `concurrency.NewSemaphore(sess, "paused", 0, nil)`, func(f *fixture) error {
		return f.acquire("paused", 0)
	}, "acquire", `"paused"`, "SetLimit"},
	{"The limit is negative.", `concurrency.NewSemaphore(sess, "render", -1, nil)`, func(f *fixture) error {
		return f.semaphore(f.sess, "render", -1)
	}, "new semaphore", `"render"`, "limit"},
	{"The session is closed.", `concurrency.NewSemaphore(sess, "render", 3, nil)`, func(f *fixture) error {
		return f.semaphore(f.closed, "render", 3)
	}, "new semaphore", `"render"`, "session or its etcd client is closed"},
	{"Two programs have different limits.", `sem.Acquire(ctx)`, func(f *fixture) error {
		require.NoError(f.t, f.acquire("mismatch", 3))
		return f.acquire("mismatch", 4)
	}, "acquire", `"mismatch"`, "SemaphoreOptions.AdoptLimit"},
	{"Two programs have different rates.", `rate.Wait(ctx)`, func(f *fixture) error {
		require.NoError(f.t, f.token("mismatched", 100))
		return f.token("mismatched", 200)
	}, "wait for a token", `"mismatched"`, "RateLimiterOptions.AdoptRate"},
	{"The weight is above the limit.", `sem.Acquire(ctx, concurrency.Weight(4))`, func(f *fixture) error {
		return f.acquire("weight", 3, concurrency.Weight(4))
	}, "acquire", `"weight"`, "SetLimit"},
	{"The weight is above the total of a limiter.", `lim.Key("acme").Acquire(ctx, concurrency.Weight(4))`, func(f *fixture) error {
		lim, err := concurrency.NewKeyedLimiter(f.sess, "tenants", 5, &concurrency.KeyedLimiterOptions{Total: 3})
		require.NoError(f.t, err)
		_, err = lim.Key("acme").Acquire(soon(f.t), concurrency.Weight(4))
		return err
	}, "acquire", `"tenants/acme"`, "KeyedLimiterOptions.Total"},
	{"Do has no function.", `mu.Do(ctx, nil)`, func(f *fixture) error {
		mu, err := concurrency.NewMutex(f.sess, "leader")
		require.NoError(f.t, err)
		return mu.Do(soon(f.t), nil)
	}, "lock", `"leader"`, "function"},

	{"The session is nil.", `schedlock.New(nil, nil)`, func(*fixture) error {
		_, err := schedlock.New(nil, nil)
		return err
	}, "new locker", "", "session"},
	{"The job has no schedule.", `locker.Job("sweep", nil, sweep)`, func(f *fixture) error {
		_, err := f.locker.Job("sweep", nil, nothing)
		return err
	}, "new job", `"sweep"`, "schedule"},
	{"The job has no function.", `locker.Job("sweep", schedlock.Periods(time.Minute), nil)`, func(f *fixture) error {
		_, err := f.locker.Job("sweep", schedlock.Periods(time.Minute), nil)
		return err
	}, "new job", `"sweep"`, "function"},
	{"The tick is the local time of a wrong clock.", `locker.Do(ctx, "sweep", sweep, schedlock.Tick(time.Now().Add(time.Hour)))`, func(f *fixture) error {
		return f.do("sweep", nothing, schedlock.Tick(time.Now().Add(time.Hour)))
	}, "run job", `"sweep"`, "Options.MaxSkew"},
	{"The period is 0.", `locker.Do(ctx, "sweep", sweep, schedlock.Every(0))`, func(f *fixture) error {
		return f.do("sweep", nothing, schedlock.Every(0))
	}, "run job", `"sweep"`, "Every"},
	{"AtMost is too short.", `locker.Do(ctx, "sweep", sweep, schedlock.AtMost(time.Microsecond))`, func(f *fixture) error {
		return f.do("sweep", nothing, schedlock.AtMost(time.Microsecond))
	}, "run job", `"sweep"`, "AtMost"},
	{"AtLeast is as long as the period.", `locker.Do(ctx, "sweep", sweep, schedlock.Every(time.Minute), schedlock.AtLeast(time.Minute))`, func(f *fixture) error {
		return f.do("sweep", nothing, schedlock.Every(time.Minute), schedlock.AtLeast(time.Minute))
	}, "run job", `"sweep"`, "AtLeast"},
	{"The schedule counts from now.", `locker.Job("sweep", cron.Every(90*time.Second), sweep)`, func(f *fixture) error {
		_, err := f.locker.Job("sweep", fromNow(90*time.Second), nothing)
		return err
	}, "new job", `"sweep"`, "Periods"},
	{"Two programs run a job with different settings.", `locker.Do(ctx, "report", report, schedlock.AtMost(time.Hour))`, func(f *fixture) error {
		other, err := schedlock.New(testkit.SessionOn(f.t, f.client.Client, f.prefix, nil), nil)
		require.NoError(f.t, err)
		if _, err := other.Do(soon(f.t), "report", nothing, schedlock.AtMost(time.Minute)); err != nil {
			return err
		}
		return f.do("report", nothing, schedlock.AtMost(time.Hour))
	}, "run job", `"report"`, "AtMost"},

	{"The key has no operation.", `idempotency.Key{Scope: "acme", ID: "K-17"}`, func(f *fixture) error {
		return f.begin(less(func(k *idempotency.Key) { k.Op = "" }), nil)
	}, "idempotency: begin", `"payments"`, "Key.Op"},
	{"The key has no ID.", `idempotency.Key{Scope: "acme", Op: "POST /charges"}`, func(f *fixture) error {
		return f.begin(less(func(k *idempotency.Key) { k.ID = "" }), nil)
	}, "idempotency: begin", `"payments"`, "Key.ID"},
	{"The key has no scope.", `idempotency.Key{Op: "POST /charges", ID: "K-17"}`, func(f *fixture) error {
		return f.begin(less(func(k *idempotency.Key) { k.Scope = "" }), nil)
	}, "idempotency: begin", `"payments"`, "Key.Scope"},
	{"The payload cannot be compared.", `store.Begin(ctx, key, request.Body)`, func(f *fixture) error {
		return f.begin(key, strings.NewReader("7 EUR"))
	}, "idempotency: begin", `"payments"`, "Fingerprint"},
	{"The function is nil.", `idempotency.Do[string](ctx, store, key, nil, nil)`, func(f *fixture) error {
		_, err := idempotency.Do[string](soon(f.t), f.store, key, nil, nil)
		return err
	}, "idempotency: do", `"payments"`, "function"},
	{"The store has no name.", `idempotency.NewStore(sess, "", nil)`, func(f *fixture) error {
		_, err := idempotency.NewStore(f.sess, "", nil)
		return err
	}, "idempotency: ", `""`, "name"},
	{"RetainUnknown is shorter than Retain.", `&idempotency.Options{Retain: 48 * time.Hour, RetainUnknown: time.Hour}`, func(f *fixture) error {
		_, err := idempotency.NewStore(f.sess, "payments", &idempotency.Options{Retain: 48 * time.Hour, RetainUnknown: time.Hour})
		return err
	}, "idempotency: ", `"payments"`, "RetainUnknown"},
	{"The limiting middleware has no key.", `limithttp.Middleware(lim, limithttp.Options{})`, func(f *fixture) error {
		return f.limited(limithttp.Options{})
	}, "limithttp: ", "", "Options.Key"},
	{"The policy Share has no total to divide.", `limithttp.Middleware(lim, limithttp.Options{Key: key, Outage: limithttp.Share})`, func(f *fixture) error {
		return f.limited(limithttp.Options{Key: func(*http.Request) (string, bool) { return "acme", true }, Outage: limithttp.Share})
	}, "limithttp: ", "tenants", "KeyedLimiterOptions.Total"},
	{"The policy Share is used beside a rate.", `limithttp.Middleware(lim, limithttp.Options{Key: key, Rate: rate, Outage: limithttp.Share})`, func(f *fixture) error {
		return f.limited(limithttp.Options{Key: func(*http.Request) (string, bool) { return "acme", true }, Rate: new(concurrency.RateLimiter), Outage: limithttp.Share})
	}, "limithttp: ", "Options.Rate", "Options.Outage"},
	{"The middleware has no scope.", `idemhttp.Middleware(store, nil)`, func(f *fixture) error {
		_, err := idemhttp.Middleware(f.store, nil)
		return err
	}, "idemhttp: ", "", "Options.Scope"},
	{"The interceptor has no scope.", `idemgrpc.UnaryServerInterceptor(store, nil)`, func(f *fixture) error {
		_, err := idemgrpc.UnaryServerInterceptor(f.store, nil)
		return err
	}, "idemgrpc: ", "", "Options.Scope"},
	{"The client sends no key.", `POST /charges`, func(f *fixture) error {
		return f.post(&idemhttp.Options{Scope: tenant}, "")
	}, `{`, "missing", "Idempotency-Key"},
	{"The client sends a malformed key.", `Idempotency-Key: K 17 ä`, func(f *fixture) error {
		return f.post(&idemhttp.Options{Scope: tenant}, "K 17 ä")
	}, `{`, "malformed", "Idempotency-Key"},
}
