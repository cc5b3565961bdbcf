package idemhttp_test

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

func TestOnceAndReplayed(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil).serve(nil, paid), f.instance(nil, nil).serve(nil, paid)
	first := a.post("/payments", `"k1"`, "body")
	require.Equal(t, http.StatusCreated, first.StatusCode)
	require.False(t, first.replayed())
	for _, s := range []server{a, b, b} {
		re := s.post("/payments", `"k1"`, "body")
		require.True(t, re.replayed())
		require.Equal(t, first.StatusCode, re.StatusCode)
		require.Equal(t, first.body, re.body)
		require.Equal(t, "/payments/1", re.Header.Get("Location"))
	}
	require.EqualValues(t, 1, a.calls.Load())
	require.Zero(t, b.calls.Load())
}

// Four servers, five simultaneous payments for each order: one charge. Rejected: one 2xx and
// four 409. Waiting: five responses that differ in nothing but Date and the mark.
func TestFourServersFivePayments(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, 30 * time.Second} {
		t.Run("wait "+wait.String(), func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			var charges sync.Map
			var servers []server
			for range 4 {
				servers = append(servers, f.instance(nil, nil).serve(&idemhttp.Options{Wait: wait}, func(w http.ResponseWriter, r *http.Request) {
					n, _ := charges.LoadOrStore(r.URL.Path, new(atomic.Int64))
					n.(*atomic.Int64).Add(1)
					time.Sleep(150 * time.Millisecond)
					paid(w, r)
				}))
			}
			for round := range 5 {
				path := "/orders/" + strconv.Itoa(round)
				var answers []<-chan reply
				for i := range 5 {
					answers = append(answers, servers[(round+i)%4].later(path, "key-"+strconv.Itoa(round), "body"))
				}
				var done, replays, busy int
				var same reply
				for _, ch := range answers {
					re := got(t, ch, "an answer")
					switch {
					case re.StatusCode == http.StatusConflict:
						require.Equal(t, idemhttp.CodeInProgress, re.problem(t).Code)
						busy++
						continue
					case re.replayed():
						replays++
					}
					require.Equal(t, http.StatusCreated, re.StatusCode)
					re.Header.Del("Date")
					re.Header.Del("Idempotent-Replayed")
					if done++; done == 1 {
						same = re
					}
					require.Equal(t, same.Header, re.Header)
					require.Equal(t, same.body, re.body)
				}
				n, _ := charges.Load(path)
				require.EqualValues(t, 1, n.(*atomic.Int64).Load())
				require.Equal(t, 1, done-replays)
				if wait > 0 {
					require.Zero(t, busy)
				} else {
					require.Equal(t, 4, busy+replays)
				}
			}
		})
	}
}

func TestMissingKey(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	s := in.serve(&idemhttp.Options{Docs: "https://pay.test/keys"}, paid)
	re := s.post("/payments", "", "body")
	p := re.problem(t)
	require.Equal(t, http.StatusBadRequest, p.Status)
	require.Equal(t, "Idempotency-Key is missing", p.Title)
	require.Equal(t, idemhttp.CodeMissing, p.Code)
	require.Equal(t, "https://pay.test/keys#missing", p.Type)
	require.Equal(t, "/payments", p.Instance)
	require.Equal(t, `<https://pay.test/keys>; rel="describedby"; type="text/html"`, re.Header.Get("Link"))
	require.False(t, p.Retryable)
	require.Zero(t, s.calls.Load())

	optional := in.serve(&idemhttp.Options{Optional: true}, paid)
	for range 2 {
		require.Equal(t, http.StatusCreated, optional.post("/payments", "", "body").StatusCode)
	}
	require.EqualValues(t, 2, optional.calls.Load())
	// A key that is none is refused all the same.
	require.Equal(t, idemhttp.CodeMalformed, optional.post("/payments", `"`, "body").problem(t).Code)
}

// The program's own form of error, in place of problem+json.
func TestOnProblem(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(&idemhttp.Options{OnProblem: func(w http.ResponseWriter, r *http.Request, p idemhttp.Problem) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(r.URL.Path + " " + string(p.Code)))
	}}, paid)
	re := s.post("/payments", "", "body")
	require.Equal(t, http.StatusTeapot, re.StatusCode)
	require.Equal(t, "/payments missing", re.body)
	require.Equal(t, "no-store", re.Header.Get("Cache-Control"))
}

// A middleware in front of all and one in front of the route do not wait for each other.
func TestTwoMiddlewares(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	inner := in.middleware(nil)(http.HandlerFunc(paid))
	s := in.serve(nil, inner.ServeHTTP)
	for n := range 2 {
		re := s.post("/payments", "k", "body")
		require.Equal(t, http.StatusCreated, re.StatusCode)
		require.Equal(t, n > 0, re.replayed())
	}
}

func TestOtherMethodsPass(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	s := in.serve(nil, paid)
	put := func(r *http.Request) { r.Method = http.MethodPut }
	for range 2 {
		require.False(t, s.post("/payments", "k", "body", put).replayed())
	}
	require.EqualValues(t, 2, s.calls.Load())
	s = in.serve(&idemhttp.Options{Methods: []string{http.MethodPut}}, paid)
	require.False(t, s.post("/payments", "k", "body", put).replayed())
	require.True(t, s.post("/payments", "k", "body", put).replayed())
}

// I32, I10: a key with another payload is refused by 422, while the first is in progress,
// and after it has ended; elsewhere too.
func TestReusedKey(t *testing.T) {
	t.Parallel()
	f := shared(t)
	h := newBlocking(t)
	a, b := f.instance(nil, nil).serve(nil, h.ServeHTTP), f.instance(nil, nil).serve(nil, paid)
	first := a.later("/payments", "k", "body")
	got(t, h.begun, "a begin")
	reused := func() {
		for _, s := range []server{a, b} {
			re := s.post("/payments", "k", "another")
			p := re.problem(t)
			require.Equal(t, http.StatusUnprocessableEntity, p.Status)
			require.Equal(t, "Idempotency-Key is already used", p.Title)
			require.Empty(t, re.Header.Get("Retry-After"))
		}
	}
	reused()
	for _, s := range []server{a, b} {
		re := s.post("/payments", "k", "body")
		p := re.problem(t)
		require.Equal(t, http.StatusConflict, p.Status)
		require.Equal(t, "A request is outstanding for this Idempotency-Key", p.Title)
		require.True(t, p.Retryable)
		require.Equal(t, "1", re.Header.Get("Retry-After"))
	}
	reused()
	h.release()
	require.Equal(t, http.StatusCreated, got(t, first, "the response").StatusCode)
	reused()
	require.True(t, b.post("/payments", "k", "body").replayed())
	require.Zero(t, b.calls.Load())
}

// I42: another key with the same body is another request.
func TestSameBodyOtherKey(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(nil, paid)
	require.False(t, s.post("/payments", "k1", "body").replayed())
	require.False(t, s.post("/payments", "k2", "body").replayed())
	require.EqualValues(t, 2, s.calls.Load())
}

// I30: one key at two routes: two requests, or refused.
func TestKeyAtTwoRoutes(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	s := in.serve(nil, paid)
	require.False(t, s.post("/payments", "k", "").replayed())
	require.False(t, s.post("/refunds", "k", "").replayed())
	require.False(t, s.post("/refunds", "k", "", func(r *http.Request) { r.Method = http.MethodPatch }).replayed())
	require.EqualValues(t, 3, s.calls.Load())

	s = in.serve(&idemhttp.Options{Op: idemhttp.OneForAll}, paid)
	require.False(t, s.post("/payments", "k", "").replayed())
	require.Equal(t, idemhttp.CodeReused, s.post("/refunds", "k", "").problem(t).Code)

	var calls atomic.Int64
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", in.middleware(&idemhttp.Options{Op: idemhttp.ByPattern})(http.HandlerFunc(paid)))
	s = in.hosting(&calls, mux)
	require.False(t, s.post("/orders/1/pay", "k", "").replayed())
	require.True(t, s.post("/orders/1/pay", "k", "").replayed())
	require.Equal(t, idemhttp.CodeReused, s.post("/orders/2/pay", "k", "").problem(t).Code)

	long := "/" + strings.Repeat("x", 1000)
	s = in.serve(nil, paid)
	require.False(t, s.post(long+"1", "k", "").replayed())
	require.False(t, s.post(long+"2", "k", "").replayed())
	require.True(t, s.post(long+"2", "k", "").replayed())
}

// I30: routes whose prefix is stripped, or whose path is rewritten, in front of the middleware
// are as many as they were.
func TestKeyAtRewrittenRoutes(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	for name, o := range map[string]*idemhttp.Options{"by-route": nil, "one-for-all": {Op: idemhttp.OneForAll}} {
		var calls atomic.Int64
		guarded := in.middleware(o)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			_, _ = io.WriteString(w, r.RequestURI)
		}))
		mux := http.NewServeMux()
		mux.Handle("/a/", http.StripPrefix("/a", guarded))
		mux.Handle("/b/", http.StripPrefix("/b", guarded))
		mux.HandleFunc("/rpc", func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path, r.URL.RawQuery = "/"+r.URL.RawQuery, ""
			guarded.ServeHTTP(w, r)
		})
		s := in.hosting(&calls, mux)
		for _, two := range [][2]string{{"/a/pay", "/b/pay"}, {"/rpc?pay", "/rpc?refund"}} {
			key := name + two[0]
			require.Equal(t, two[0], s.post(two[0], key, "body").body)
			if o == nil && two[0] == "/a/pay" {
				require.Equal(t, two[1], s.post(two[1], key, "body").body)
			} else { // of a path that is made from a query, the query is another one
				p := s.post(two[1], key, "body").problem(t)
				require.Equal(t, idemhttp.CodeReused, p.Code)
				path, _, _ := strings.Cut(two[1], "?")
				require.Equal(t, path, p.Instance)
			}
			require.True(t, s.post(two[0], key, "body").replayed())
		}
	}

	// A request as a proxy gets it; one to the server as a whole; and one that no server has read.
	mw := in.middleware(nil)(http.HandlerFunc(paid))
	for _, same := range [][]string{{"/whole", "http://example.com/whole", ""}, {"*"}} {
		for n, uri := range same {
			r := httptest.NewRequest(http.MethodPost, same[0], nil)
			r.RequestURI = uri
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			mw.ServeHTTP(w, r)
			require.Equal(t, http.StatusCreated, w.Code)
			require.Equal(t, n > 0, w.Header().Get("Idempotent-Replayed") == "true", uri)
		}
	}
}

// I31: one key of two tenants: each gets what is its own, and neither learns of the other.
func TestKeyOfTwoTenants(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{})
	s := in.serve(&idemhttp.Options{Scope: func(r *http.Request) string { return r.Header.Get("Tenant") }}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Header.Get("Tenant")))
	})
	for range 2 {
		require.Equal(t, "a", s.post("/payments", "k", "body", header("Tenant", "a")).body)
		require.Equal(t, "b", s.post("/payments", "k", "another", header("Tenant", "b")).body)
	}
	require.EqualValues(t, 2, s.calls.Load())
	require.Equal(t, idemhttp.CodeScope, s.post("/payments", "k", "body").problem(t).Code)

	_, err := idemhttp.Middleware(in.Store, nil)
	require.ErrorIs(t, err, idempotency.ErrInvalid, "no scope, and many tenants")
}

// I27, and what the options refuse.
func TestOptions(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	in.middleware(nil)
	in.middleware(&idemhttp.Options{})
	_, err := idemhttp.Middleware(nil, nil)
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	for _, o := range []idemhttp.Options{
		{MaxRequest: -1}, {MaxResponse: -1}, {MaxResponse: 8 << 20}, {Wait: -1}, {StoreTimeout: -1}, {Docs: "http://x/#y"}, {Docs: ":"},
	} {
		_, err := idemhttp.Middleware(in.Store, &o)
		require.ErrorIs(t, err, idempotency.ErrInvalid, "%+v", o)
		_, err = idemhttp.PolicyHandler(in.Store, &o)
		require.ErrorIs(t, err, idempotency.ErrInvalid, "%+v", o)
	}
	refuse, err := idempotency.NewStore(in.sess, "refuse", &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	require.NoError(t, err)
	_, err = idemhttp.Middleware(refuse, &idemhttp.Options{FailOpen: true})
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.ErrorContains(t, err, "FailOpen runs handlers without a claim")
	for name, set := range map[string]func(*idemhttp.Options, bool){
		"MaxRequest":   func(o *idemhttp.Options, over bool) { o.MaxRequest = pick[int64](over, math.MaxInt64, 1<<30) },
		"Wait":         func(o *idemhttp.Options, over bool) { o.Wait = pick(over, math.MaxInt64, 24*time.Hour) },
		"StoreTimeout": func(o *idemhttp.Options, over bool) { o.StoreTimeout = pick(over, math.MaxInt64, 24*time.Hour) },
	} {
		var o idemhttp.Options
		set(&o, true)
		_, err := idemhttp.Middleware(in.Store, &o)
		require.ErrorIs(t, err, idempotency.ErrInvalid)
		require.ErrorContains(t, err, "Options."+name+" ")
		set(&o, false)
		require.Equal(t, http.StatusCreated, in.serve(&o, paid).post("/", name, "body").StatusCode, "the greatest %s works", name)
	}
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// I38: what may be otherwise next time is not remembered.
func TestStatusThatFreesTheKey(t *testing.T) {
	t.Parallel()
	f := shared(t)
	status := func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(n)
	}
	in := f.instance(nil, nil)
	s := in.serve(nil, status)
	for _, n := range []int{401, 403, 407, 408, 421, 425, 429, 500, 502, 503, 504} {
		path := "/?status=" + strconv.Itoa(n)
		for range 2 {
			re := s.post(path, "k"+strconv.Itoa(n), "")
			require.Equal(t, n, re.StatusCode)
			require.False(t, re.replayed(), n)
		}
	}
	for _, n := range []int{200, 201, 204, 303, 400, 404, 409, 410, 422} {
		path := "/?status=" + strconv.Itoa(n)
		require.False(t, s.post(path, "k"+strconv.Itoa(n), "").replayed())
		re := s.post(path, "k"+strconv.Itoa(n), "")
		require.Equal(t, n, re.StatusCode)
		require.True(t, re.replayed(), n)
	}

	s = in.serve(&idemhttp.Options{OnStatus: func(int) idempotency.Action { return idempotency.Remember }}, status)
	s.post("/?status=500", "k", "")
	require.True(t, s.post("/?status=500", "k", "").replayed())
}

// The handler knows better than its status.
func TestDecide(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keep" {
			require.True(t, idemhttp.Decide(r.Context(), idempotency.Remember))
			w.WriteHeader(http.StatusInternalServerError)
		} else {
			require.True(t, idemhttp.Decide(r.Context(), idempotency.Forget))
		}
	})
	require.Equal(t, 500, s.post("/keep", "k", "").StatusCode)
	require.True(t, s.post("/keep", "k", "").replayed())
	s.post("/forget", "k", "")
	require.False(t, s.post("/forget", "k", "").replayed())
	require.False(t, idemhttp.Decide(t.Context(), idempotency.Forget))
}

// DefaultAction, the zero value, is what RememberFinal returns, from OnStatus as from Decide: a table
// of some statuses does not have the others run again.
func TestDefaultAction(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	statuses := map[string]int{"/ok": 201, "/kept": 500, "/retried": 503}
	table := &idemhttp.Options{OnStatus: func(status int) idempotency.Action {
		return map[int]idempotency.Action{500: idempotency.Remember}[status]
	}}
	s := in.serve(table, func(w http.ResponseWriter, r *http.Request) {
		idemhttp.Decide(r.Context(), idempotency.Forget)
		idemhttp.Decide(r.Context(), idempotency.DefaultAction)
		w.WriteHeader(statuses[r.URL.Path])
	})
	for path, status := range statuses {
		require.Equal(t, status, s.post(path, "k", "").StatusCode)
		require.Equal(t, status != 503, s.post(path, "k", "").replayed(), path)
	}
}

// Under Refuse, duplicates of a lost attempt get a 409 until an operator has resolved the request.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	var at atomic.Pointer[idempotency.Attempt]
	reported := make(chan error, 10)
	opts := &idemhttp.Options{
		ReportError: func(_ *http.Request, err error) { reported <- err },
		Note:        func(r *http.Request, body []byte) string { return r.Method + " " + r.URL.Path + ": " + string(body) },
	}
	s := in.serve(opts, func(w http.ResponseWriter, r *http.Request) {
		a, ok := idempotency.FromContext(r.Context())
		require.True(t, ok)
		at.Store(a)
		if a.Key().ID == "k3" {
			require.NoError(t, a.Commit(r.Context(), []byte("no response of ours")))
		}
		panic(http.ErrAbortHandler)
	})
	_, err := s.send(s.request("/payments", "k", "body"))
	require.Error(t, err, "the panic continues to the server")
	re := s.post("/payments", "k", "body")
	p := re.problem(t)
	require.Equal(t, idemhttp.CodeUnknown, p.Code)
	require.Equal(t, http.StatusConflict, p.Status)
	require.Equal(t, in.Ref(at.Load().Key()), p.Ref, "by which an operator finds the record")
	require.Contains(t, re.body, `"ref":"`+string(p.Ref)+`"`)
	require.ErrorIs(t, got(t, reported, "the unknown outcome"), idempotency.ErrUnknown)
	require.False(t, p.Retryable)
	require.Empty(t, re.Header.Get("Retry-After"))

	require.Empty(t, p.Note, "the operator's text is not the client's")
	rec, _, err := in.Get(ctxT(t), p.Ref)
	require.NoError(t, err)
	require.Equal(t, "http", rec.Via)
	require.Equal(t, "POST /payments: body", rec.Note)
	shows := in.serve(&idemhttp.Options{ShowNote: true}, paid)
	require.Equal(t, "POST /payments: body", shows.post("/payments", "k", "body").problem(t).Note)
	err = in.Resolve(ctxT(t), p.Ref, idempotency.WasDone([]byte(`{"charge":7}`)))
	require.ErrorIs(t, err, idempotency.ErrInvalid, "no duplicate could get it")
	require.ErrorContains(t, err, "Response.Encode")

	found := idemhttp.Response{Status: 201, Header: http.Header{"Location": {"/payments/7"}}, Body: []byte("found")}
	require.NoError(t, in.Resolve(ctxT(t), p.Ref, idempotency.WasDone(found.Encode())))
	re = s.post("/payments", "k", "body")
	require.True(t, re.replayed())
	require.Equal(t, "found", re.body)
	require.Equal(t, "/payments/7", re.Header.Get("Location"))
	require.EqualValues(t, 1, s.calls.Load())

	_, err = s.send(s.request("/payments", "k2", "body"))
	require.Error(t, err)
	require.NoError(t, in.Resolve(ctxT(t), in.Ref(at.Load().Key()), idempotency.HasFailed("card declined")))
	require.Equal(t, idemhttp.CodeFailed, s.post("/payments", "k2", "body").problem(t).Code)

	_, err = s.send(s.request("/payments", "k3", "body"))
	require.Error(t, err)
	for len(reported) > 0 {
		<-reported
	}
	re = s.post("/payments", "k3", "body")
	p = re.problem(t)
	require.Equal(t, idemhttp.CodeUnreadable, p.Code)
	require.Equal(t, in.Ref(at.Load().Key()), p.Ref)
	require.False(t, p.Retryable, "a repetition gets the same answer until an operator acts")
	require.Empty(t, re.Header.Get("Retry-After"))
	require.Contains(t, p.Detail, "operator")
	err = got(t, reported, "the result that is no response")
	require.ErrorContains(t, err, string(p.Ref))
	require.ErrorContains(t, err, "Response.Encode")
	require.ErrorContains(t, err, "Store.Delete")
	require.NoError(t, in.Delete(ctxT(t), p.Ref))
	calls := s.calls.Load()
	_, err = s.send(s.request("/payments", "k3", "body"))
	require.Error(t, err)
	require.Equal(t, calls+1, s.calls.Load(), "the request begins anew")
}

// If a condition of the handler's attempt is not met, its operations are not done, and the client
// gets a 409 that says so, in place of the handler's response. The other effects of the handler stay,
// and the problem does not deny them.
func TestConflictOfTheHandlersOwn(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	var reported atomic.Pointer[error]
	s := in.serve(&idemhttp.Options{ReportError: func(_ *http.Request, err error) { reported.Store(&err) }}, func(w http.ResponseWriter, r *http.Request) {
		a, _ := idempotency.FromContext(r.Context())
		a.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(f.Root+"none"), ">", 0)})
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		paid(w, r)
	})
	re := s.post("/payments", "k", "body")
	p := re.problem(t)
	require.Empty(t, re.Header.Get("Link")+re.Header.Get("Location"), "nothing is left of what the handler has set")
	require.Equal(t, idemhttp.CodeConflict, p.Code)
	require.Contains(t, p.Detail, "The request has executed, and what it was to write together with its outcome was not written.")
	require.True(t, errors.Is(*reported.Load(), idempotency.ErrConflict))
	require.True(t, p.Retryable)
	require.Equal(t, "1", re.Header.Get("Retry-After"))
	s.post("/payments", "k", "body")
	require.EqualValues(t, 2, s.calls.Load(), "the key was released")
}

// V27: under Refuse a repetition after such a conflict executes nothing, so the answer does not invite it, and has the
// reference for the operator.
func TestConflictUnderRefuse(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
		a, _ := idempotency.FromContext(r.Context())
		a.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("none"), ">", 0)})
		paid(w, r)
	})
	re := s.post("/payments", "k", "body")
	p := re.problem(t)
	require.Equal(t, idemhttp.CodeConflict, p.Code)
	require.False(t, p.Retryable)
	require.Empty(t, re.Header.Get("Retry-After"))
	require.Contains(t, p.Detail, "operator")
	again := s.post("/payments", "k", "body").problem(t)
	require.Equal(t, idemhttp.CodeUnknown, again.Code)
	require.Equal(t, again.Ref, p.Ref)
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{SingleTenant: true, Retain: time.Hour})
	h, err := idemhttp.PolicyHandler(in.Store, &idemhttp.Options{NeverStore: []string{"X-Secret"}})
	require.NoError(t, err)
	get := func(accept string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/keys", nil)
		r.Header.Set("Accept", accept)
		h.ServeHTTP(w, r)
		return w
	}
	w := get("application/json")
	for _, part := range []string{`"expirationSeconds": 3600`, `"Idempotency-Key"`, `"X-Secret"`, `"Set-Cookie"`, `"status": 422`, `"required": true`} {
		require.Contains(t, w.Body.String(), part)
	}
	require.Contains(t, w.Body.String(), `"notFinalStatuses": "401, 403, 407 to 408, 421, 423, 425, 429, 449, 499 to 599"`)
	require.Contains(t, w.Body.String(), "executes again when it is repeated")
	refuse := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	h2, err := idemhttp.PolicyHandler(refuse.Store, &idemhttp.Options{OnStatus: func(status int) idempotency.Action {
		if status >= 500 && status <= 503 {
			return idempotency.Forget
		}
		return idempotency.Remember
	}})
	require.NoError(t, err)
	w = httptest.NewRecorder()
	h2.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/keys", nil))
	require.Contains(t, w.Body.String(), "500 to 503. After a response")
	require.Contains(t, w.Body.String(), "until an operator has decided")
	w = get("text/html")
	require.Contains(t, w.Header().Get("Content-Type"), "text/html")
	require.Contains(t, w.Body.String(), `<tr id="in-progress">`)
	require.Contains(t, w.Body.String(), "1h0m0s")
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/keys", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
}
