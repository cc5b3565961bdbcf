package idemhttp_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// part is a part of a form: a field, or a file if it has a file name.
type part struct{ name, file, text string }

// form encodes a form, with another boundary each time.
func form(t testing.TB, parts ...part) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for _, p := range parts {
		h := textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf(`form-data; name=%q`, p.name)}}
		if p.file != "" {
			h.Set("Content-Disposition", fmt.Sprintf(`form-data; name=%q; filename=%q`, p.name, p.file))
			h.Set("Content-Type", "text/csv; charset=utf-8")
		}
		w, err := m.CreatePart(h)
		require.NoError(t, err)
		_, err = io.WriteString(w, p.text)
		require.NoError(t, err)
	}
	require.NoError(t, m.Close())
	return b.String(), m.FormDataContentType()
}

// A98: a form that is sent again, encoded anew, is the same request; one with another content is not.
func TestFormEncodedAnew(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	order, file := part{"order", "", "17"}, part{"file", "a.csv", "1;2\n"}
	for name, o := range map[string]*idemhttp.Options{"default": nil, "Exact": {Payload: idemhttp.Exact}} {
		s := in.serve(o, paid)
		send := func(key string, parts ...part) reply {
			body, contentType := form(t, parts...)
			return s.post("/upload", name+key, body, header("Content-Type", contentType))
		}
		require.False(t, send("k", order, file).replayed())
		for range 3 {
			require.True(t, send("k", order, file).replayed())
		}
		require.True(t, send("k", file, order).replayed(), "the order of names does not count")
		for _, other := range [][]part{
			{order}, {order, file, file}, {order, {"file", "b.csv", "1;2\n"}}, {order, {"file", "a.csv", "1;3\n"}}, {order, {"other", "a.csv", "1;2\n"}}, {{"order", "", "18"}, file}, {order, {"file", "", "1;2\n"}},
		} {
			require.Equal(t, idemhttp.CodeReused, send("k", other...).problem(t).Code, other)
		}
		require.False(t, send("two", part{"a", "", "1"}, part{"a", "", "2"}).replayed())
		require.Equal(t, idemhttp.CodeReused, send("two", part{"a", "", "2"}, part{"a", "", "1"}).problem(t).Code, "the order in one name counts")

		// A body of more parts than net/http reads, or that is not what its type says, is compared as
		// it is.
		many := make([]part, 1001)
		for i := range many {
			many[i] = order
		}
		require.False(t, send("many", many...).replayed())
		require.Equal(t, idemhttp.CodeReused, send("many", many...).problem(t).Code)
		require.False(t, send("thousand", many[:1000]...).replayed())
		require.True(t, send("thousand", many[:1000]...).replayed())
		body, contentType := form(t, order)
		cut, kind := body[:len(body)-10], header("Content-Type", contentType)
		require.False(t, s.post("/upload", name+"cut", cut, kind).replayed())
		require.True(t, s.post("/upload", name+"cut", cut, kind).replayed())
		require.Equal(t, idemhttp.CodeReused, s.post("/upload", name+"cut", body, kind).problem(t).Code)
		require.False(t, s.post("/upload", name+"none", "no parts", kind).replayed())
		require.Equal(t, idemhttp.CodeReused, s.post("/upload", name+"none", "other text", kind).problem(t).Code)
	}
}

// A98: JSON that is sent again is the same request in whatever way it was encoded, unless Exact is asked
// for. What cannot be compared as JSON is compared as it is.
func TestJSONEncodedAnew(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	s, exact := in.serve(nil, paid), in.serve(&idemhttp.Options{Payload: idemhttp.Exact}, paid)
	for n, c := range []struct {
		media, one, other string
		same              bool
	}{
		{"application/json", `{"amount":100,"currency":"EUR"}`, `{"amount":100, "currency":"EUR"}`, true},
		{"application/json; charset=utf-8", `{"amount":100,"to":"é"}`, `{"to":"\u00e9","amount":100}`, true},
		{"application/vnd.shop+json", `[1,2]`, "[1, 2]\n", true},
		{"application/json", `[1,2]`, `[2,1]`, false},
		{"application/json", `{"amount":100}`, `{"amount":100.0}`, false},
		{"application/json", `{"amount":100}`, `{"amount":1000}`, false},
		{"application/json", `{"a":1,"a":2}`, `{"a":1, "a":2}`, false},
		{"application/json", `{"a":1,"a":2}`, `{"a":1,"a":2}`, true},
		{"application/json", `{"a":`, `{"a":`, true},
		{"application/json", ``, ``, true},
		{"application/json", ``, `{}`, false},
		{"text/plain", `[1,2]`, `[1, 2]`, false},
	} {
		key, kind := fmt.Sprint("k", n), header("Content-Type", c.media)
		require.False(t, s.post("/", key, c.one, kind).replayed(), c)
		require.Equal(t, c.same, s.post("/", key, c.other, kind).replayed(), c)
		require.False(t, exact.post("/exact", key, c.one, kind).replayed(), c)
		require.Equal(t, c.one == c.other, exact.post("/exact", key, c.other, kind).replayed(), c)
	}
}

// A98: a body that was compressed again is the same request; one that would take long to decompress is
// compared as it is.
func TestBodyCompressedAnew(t *testing.T) {
	t.Parallel()
	s := shared(t).instance(nil, nil).serve(nil, paid)
	send := func(key, text string, level int) reply {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, level)
		require.NoError(t, err)
		_, err = io.WriteString(z, text)
		require.NoError(t, err)
		require.NoError(t, z.Close())
		return s.post("/", key, b.String(), header("Content-Encoding", "gzip"), header("Content-Type", "application/json"))
	}
	require.False(t, send("k", `{"a":1,"b":2}`, gzip.BestSpeed).replayed())
	require.True(t, send("k", `{"b":2,"a":1}`, gzip.NoCompression).replayed())
	require.Equal(t, idemhttp.CodeReused, send("k", `{"a":1,"b":3}`, gzip.BestSpeed).problem(t).Code)
	plain := s.post("/", "k", `{"a":1,"b":2}`, header("Content-Type", "application/json"))
	require.Equal(t, idemhttp.CodeReused, plain.problem(t).Code, "the content coding counts")

	large := `"` + strings.Repeat("x", 1<<20) + `"`
	require.False(t, send("large", large, gzip.BestSpeed).replayed())
	require.True(t, send("large", large, gzip.BestSpeed).replayed())
	require.Equal(t, idemhttp.CodeReused, send("large", large, gzip.BestCompression).problem(t).Code)
}

// A100: one path in two spellings is one path; a slash that is percent-encoded is a part of its segment.
func TestFormsOfAPath(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	for name, o := range map[string]*idemhttp.Options{"by-route": nil, "one-for-all": {Op: idemhttp.OneForAll}} {
		var calls atomic.Int64
		mux := http.NewServeMux()
		mux.HandleFunc("POST /users/{id}/pay", func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			_, _ = io.WriteString(w, r.PathValue("id"))
		})
		s := in.hosting(&calls, in.middleware(o)(mux))
		for n, c := range []struct {
			one, other string
			same       bool
		}{
			{"/users/~ada/pay", "/users/%7Eada/pay", true},
			{"/users/%7Eada/pay", "/users/%7eada/pay", true},
			{"/users/ada/pay", "/users/%61da/pay", true},
			{"/users/a%2Fb/pay", "/users/a%2fb/pay", true},
			{"/users/a,b;c/pay", "/users/a%2Cb%3Bc/pay", true},
			{"/users/%C3%A9/pay", "/users/%c3%a9/pay", true},
			{"/users/a/pay", "/users/A/pay", false},
			{"/users/a%252Fb/pay", "/users/a%2Fb/pay", false},
			{"/users/a+b/pay", "/users/a%20b/pay", false},
		} {
			key := fmt.Sprint(name, n)
			first := s.post(c.one, key, "body")
			require.Equal(t, http.StatusOK, first.StatusCode, c)
			again := s.post(c.other, key, "body")
			require.Equal(t, c.same, again.replayed(), c)
			if c.same {
				require.Equal(t, first.body, again.body, c)
			}
		}
		require.False(t, s.post("/users/a/b/pay", name+"slash", "body").replayed()) // no such route
		require.False(t, s.post("/users/a%2Fb/pay", name+"slash", "body").replayed())
	}
}

// A99: where the Middleware stands does not count: a key that was used in front of http.StripPrefix, of a
// router and of a rewriting is the same behind it, in the next release or in another instance.
func TestMiddlewareMoves(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	var calls atomic.Int64
	charge := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "charge %d", calls.Add(1))
	}))
	mw := in.middleware(nil)
	router := func(h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/api/", http.StripPrefix("/api", h))
		return mux
	}
	rewrite := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.Path, r.URL.RawPath, r.URL.RawQuery = "/v2"+r.URL.Path, "", "version=2&"+r.URL.RawQuery
			h.ServeHTTP(w, r)
		})
	}
	for n, release := range []http.Handler{
		mw(http.StripPrefix("/api", charge)), http.StripPrefix("/api", mw(charge)), router(mw(charge)), mw(router(charge)), rewrite(mw(charge)), mw(rewrite(charge)),
	} {
		s := in.hosting(&calls, release)
		re := s.post("/api/charges?a=1", "k", "body")
		require.Equal(t, "charge 1", re.body)
		require.Equal(t, n > 0, re.replayed())
		require.Equal(t, idemhttp.CodeReused, s.post("/api/charges?a=2", "k", "body").problem(t).Code)
	}
}

// A102: behind a proxy that sends the name of each backend, a retry that reaches another instance is
// refused, and client and operator see the reason: not that it was another request.
func TestProxyWithNamedBackends(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	var mu sync.Mutex
	var reported []error
	s := in.serve(&idemhttp.Options{ReportError: func(_ *http.Request, err error) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, err)
	}}, paid)
	backend, err := url.Parse(s.URL)
	require.NoError(t, err)
	var turn atomic.Int64
	var preserve atomic.Bool
	proxy := in.hosting(nil, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(backend)
		r.Out.Host = fmt.Sprintf("app-%d", turn.Add(1)%2)
		if preserve.Load() {
			r.Out.Host = r.In.Host
		}
	}})
	require.Equal(t, http.StatusCreated, proxy.post("/pay", "k", "body").StatusCode)
	p := proxy.post("/pay", "k", "body").problem(t)
	require.Equal(t, idemhttp.CodeReused, p.Code)
	require.Contains(t, p.Detail, "host")
	require.Len(t, reported, 1)
	require.ErrorIs(t, reported[0], idempotency.ErrMismatch)
	require.ErrorContains(t, reported[0], "Options.Host")
	require.ErrorContains(t, reported[0], `"app-0"`)
	require.True(t, proxy.post("/pay", "k", "body").replayed(), "the first instance again")

	// Another payload is another request, and nothing that an operator should know.
	require.NotContains(t, proxy.post("/pay", "k", "other").problem(t).Detail, "host")
	require.Len(t, reported, 1)
	preserve.Store(true)
	require.False(t, proxy.post("/pay", "k2", "body", host("shop.example")).replayed())
	require.True(t, proxy.post("/pay", "k2", "body", host("shop.example")).replayed())
	require.Len(t, reported, 1)
}

// A96: an attempt that takes over sends the same requests with the same keys, in whatever way they
// were encoded; what is another request has another key.
func TestTransportInOtherBytes(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	p := &provider{}
	c := &http.Client{Transport: &idemhttp.Transport{Base: p}}
	formOf := func(text string) (string, string) {
		return form(t, part{"order", "", text}, part{"file", "a.csv", text})
	}
	jsonOf := func(text string) func() (string, string) {
		return func() (string, string) { return text, "application/json" }
	}
	keyOf := func(id, uri string, encode func() (body, contentType string)) string {
		a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: id}, nil)
		require.NoError(t, err)
		body, contentType := encode()
		r, err := http.NewRequestWithContext(a.Context(), http.MethodPost, uri, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", contentType)
		p.keys = nil
		resp, err := c.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.NoError(t, a.Abandon(ctxT(t)))
		require.Len(t, p.keys, 1)
		return p.keys[0]
	}
	manyParts := func() (string, string) { return form(t, slices.Repeat([]part{{"order", "", "17"}}, 1001)...) }
	const pay = "https://pay.test/charges"
	for name, c := range map[string]struct {
		one, other   string
		first, again func() (string, string)
		same         bool
	}{
		"json":         {pay, pay, jsonOf(`{"amount":100,"currency":"EUR"}`), jsonOf(`{"currency":"EUR", "amount":100}`), true},
		"other-json":   {pay, pay, jsonOf(`{"amount":100}`), jsonOf(`{"amount":1000}`), false},
		"form":         {pay, pay, func() (string, string) { return formOf("1") }, func() (string, string) { return formOf("1") }, true},
		"other-form":   {pay, pay, func() (string, string) { return formOf("1") }, func() (string, string) { return formOf("2") }, false},
		"many-parts":   {pay, pay, manyParts, manyParts, true},
		"path":         {pay + "/~ada", "https://PAY.test:443/charges/%7eada", jsonOf("1"), jsonOf("1"), true},
		"query":        {pay + "?a=1&b=2", pay + "?b=2&a=1", jsonOf("1"), jsonOf("1"), true},
		"other-query":  {pay + "?a=1", pay + "?a=2", jsonOf("1"), jsonOf("1"), false},
		"other-path":   {pay + "/a%2Fb", pay + "/a/b", jsonOf("1"), jsonOf("1"), false},
		"other-host":   {pay, "https://refund.test/charges", jsonOf("1"), jsonOf("1"), false},
		"other-scheme": {pay, "http://pay.test/charges", jsonOf("1"), jsonOf("1"), false},
	} {
		require.Equal(t, c.same, keyOf(name, c.one, c.first) == keyOf(name, c.other, c.again), name)
	}
}
