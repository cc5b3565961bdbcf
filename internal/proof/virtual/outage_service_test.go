package virtual

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/observe"
)

// served is a process that serves requests under a limit of one on a server of net/http, with what the
// middleware reports of an outage.
type served struct {
	*desk
	lim      *concurrency.KeyedLimiter
	web      *http.Client // sends requests to it
	changes  chan bool    // by OnOutage: whether one has begun
	policies chan observe.OutagePolicy
	reported atomic.Int64
}

// serve starts such a process. A response to a request without a permit has the header Permitted: no. The
// handler of a PUT runs until its permit is lost, sends the permit's error to held, and returns when stop is
// closed.
func serve(d *desk, wait time.Duration, policy limithttp.Outage, held chan<- error, stop <-chan struct{}) *served {
	d.t.Helper()
	s := &served{desk: d, changes: make(chan bool, 10), policies: make(chan observe.OutagePolicy, 10)}
	d.open(concurrency.SessionOptions{Hooks: []observe.Hooks{{Event: func(_ context.Context, e observe.Event) {
		if e, ok := e.(observe.OutagePolicy); ok {
			s.policies <- e
		}
	}}}})
	var err error
	s.lim, err = concurrency.NewKeyedLimiter(d.session, "tenants", 1, nil)
	require.NoError(d.t, err)
	mw, err := limithttp.Middleware(s.lim, limithttp.Options{
		Key:  func(*http.Request) (string, bool) { return "acme", true },
		Wait: wait, Outage: policy, Patience: time.Millisecond,
		OnOutage:    func(err error) { s.changes <- err != nil },
		ReportError: func(*http.Request, error) { s.reported.Add(1) },
	})
	require.NoError(d.t, err)
	lis := listen(d.t, mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, permitted := limithttp.FromContext(r.Context())
		if r.Method == http.MethodPut {
			<-r.Context().Done()
			held <- p.Err()
			<-stop
		}
		if !permitted {
			w.Header().Set("Permitted", "no")
		}
		_, _ = io.WriteString(w, "done")
	})))
	base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return lis.DialContext(ctx) }}
	d.t.Cleanup(base.CloseIdleConnections)
	s.web = &http.Client{Transport: base}
	return s
}

// answer is a response that was read.
type answer struct {
	*http.Response
	body []byte
}

// do sends a request.
func (s *served) do(method string) (re answer, err error) {
	r, err := http.NewRequestWithContext(context.Background(), method, "http://service/work", nil)
	if err != nil {
		return re, err
	}
	if re.Response, err = s.web.Do(r); err != nil {
		return re, err
	}
	defer re.Body.Close()
	re.body, err = io.ReadAll(re.Body)
	return re, err
}

// get sends a request that is answered.
func (s *served) get() answer {
	s.t.Helper()
	re, err := s.do(http.MethodGet)
	require.NoError(s.t, err)
	return re
}

// inOutage requires the answer that a policy gives to a request while etcd is away.
func (s *served) inOutage(policy limithttp.Outage) {
	s.t.Helper()
	re := s.get()
	if policy == limithttp.Open {
		require.Equal(s.t, http.StatusOK, re.StatusCode)
		require.Equal(s.t, "no", re.Header.Get("Permitted"))
		return
	}
	require.Equal(s.t, http.StatusServiceUnavailable, re.StatusCode)
	require.NotEmpty(s.t, re.Header.Get("Retry-After"))
	var p limithttp.Problem
	require.NoError(s.t, json.Unmarshal(re.body, &p))
	require.Equal(s.t, limithttp.CodeUnavailable, p.Code)
}

// permitted requires that a request runs under a permit.
func (s *served) permitted() {
	s.t.Helper()
	re := s.get()
	require.Equal(s.t, http.StatusOK, re.StatusCode)
	require.Empty(s.t, re.Header.Get("Permitted"))
}

// TestServiceThatIsCutOff: one of two processes is cut off from etcd. Under Closed it answers 503. Under Open it
// serves all requests, each reported, and the other process keeps the limit for itself. When etcd answers
// again, both share the limit.
func TestServiceThatIsCutOff(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]limithttp.Outage{"closed": limithttp.Closed, "open": limithttp.Open} {
		for how, away := range aways {
			t.Run(name+", etcd "+how, func(t *testing.T) {
				bubble(t, 2, func(t *testing.T, on []*desk) {
					held, stop := make(chan error, 1), make(chan struct{})
					finish := sync.OnceFunc(func() { close(stop) })
					defer finish()
					cut, whole := serve(on[0], time.Second, policy, held, stop), serve(on[1], time.Minute, policy, nil, nil)
					before := make(chan answer, 1)
					go func() {
						re, err := cut.do(http.MethodPut)
						if err == nil {
							before <- re
						}
					}()
					time.Sleep(time.Second)
					away(cut.client)

					begun := time.Now()
					for range 5 {
						cut.inOutage(policy)
					}
					require.True(t, came(t, cut.changes, "the outage begins"))
					e := came(t, cut.policies, "hooks see it")
					require.ErrorIs(t, e.Err, concurrency.ErrUnavailable)
					e.Err = nil
					require.Equal(t, observe.OutagePolicy{Namespace: "test", Kind: observe.Limiter, Name: "tenants", Policy: name, Active: true}, e)
					require.EqualValues(t, 5, cut.reported.Load())

					require.ErrorIs(t, came(t, held, "the permit from before ends"), concurrency.ErrLost)
					require.Less(t, time.Since(begun), ttl-margin)
					whole.permitted()
					require.LessOrEqual(t, time.Since(begun), ttl+time.Second, "the other process gets it")
					require.Empty(t, whole.changes)
					cut.inOutage(policy)

					cut.client.Heal()
					finish()
					require.Equal(t, http.StatusOK, came(t, before, "its response had no status yet, and it writes one").StatusCode)
					time.Sleep(10 * time.Second)
					cut.permitted()
					require.False(t, came(t, cut.changes, "the outage ends"))
					e = came(t, cut.policies, "hooks see it")
					require.Positive(t, e.Lasted)
					require.Equal(t, []any{false, name, nil}, []any{e.Active, e.Policy, e.Err})
					p, err := whole.lim.Key("acme").TryAcquire(t.Context())
					require.NoError(t, err)
					require.Equal(t, http.StatusTooManyRequests, cut.get().StatusCode, "the limit is that of both")
					require.NoError(t, p.Release(t.Context()))
					require.Empty(t, cut.changes)
				})
			})
		}
	}
}

// A182 in internal/proof/tested-failures.md: the outage of a service without requests ends when etcd is back, with or
// without the lease from before, and not while it is away; that of a closed session ends before SessionClosed.
func TestOutageOfAnIdleService(t *testing.T) {
	t.Parallel()
	for how, away := range aways {
		for name, lasts := range map[string]time.Duration{"lease lives": 3 * time.Second, "lease is lost": 3 * ttl} {
			t.Run(how+", "+name, func(t *testing.T) {
				bubble(t, 1, func(t *testing.T, on []*desk) {
					s := serve(on[0], time.Second, limithttp.Closed, nil, nil)
					s.permitted()
					time.Sleep(time.Until(s.begun.Add(renews + time.Second)))
					away(s.client)
					s.inOutage(limithttp.Closed)
					require.True(t, came(t, s.changes, "the outage begins"))
					require.True(t, came(t, s.policies, "hooks see it").Active)
					time.Sleep(lasts)
					require.Empty(t, s.policies, "etcd is away")
					s.client.Heal()
					time.Sleep(ttl)
					require.False(t, came(t, s.changes, "the outage ends without a request"))
					require.False(t, came(t, s.policies, "hooks see it").Active)
					s.permitted()
					require.Empty(t, s.policies)
				})
			})
		}
	}
}
