package idemhttp_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// sink is a ResponseWriter that costs nothing.
type sink struct {
	h      http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkReplay is what the middleware takes for a request whose response is in this
// process's cache, without server and network; beside it the store's part of that, and a
// request that needs no key.
func BenchmarkReplay(b *testing.B) {
	in := shared(b).instance(nil, &idempotency.Options{SingleTenant: true, CacheFor: 1 << 40})
	for _, size := range []struct {
		name  string
		bytes int
	}{{"1KiB", 1 << 10}, {"64KiB", 64 << 10}} {
		body := bytes.Repeat([]byte("x"), size.bytes)
		h := in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "/payments/1")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(body)
		}))
		sent := bytes.NewReader(bytes.Repeat([]byte("y"), 200))
		serve := func(method string) *sink {
			_, _ = sent.Seek(0, io.SeekStart)
			r := httptest.NewRequest(method, "/payments", sent)
			r.Header.Set("Idempotency-Key", `"`+size.name+`"`)
			r.Header.Set("Content-Type", "application/json")
			w := &sink{h: http.Header{}}
			h.ServeHTTP(w, r)
			return w
		}
		require.Equal(b, http.StatusCreated, serve(http.MethodPost).status)
		require.NotEmpty(b, serve(http.MethodPost).h.Get("Idempotent-Replayed"))
		b.Run("middleware/"+size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				serve(http.MethodPost)
			}
		})
	}
	key := idempotency.Key{Op: "bench", ID: "1"}
	a, _, err := in.Begin(ctxT(b), key, "payload")
	require.NoError(b, err)
	require.NoError(b, a.Commit(ctxT(b), make([]byte, 1<<10)))
	b.Run("store alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, rec, err := in.Begin(b.Context(), key, "payload", idempotency.Wait(0)); rec == nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("no key needed", func(b *testing.B) {
		h := in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusCreated) }))
		b.ReportAllocs()
		for b.Loop() {
			h.ServeHTTP(&sink{h: http.Header{}}, httptest.NewRequest(http.MethodGet, "/payments", nil))
		}
	})
}

// BenchmarkLargeBody is a replay of a request whose body is a mebibyte: of numbers, and of orders as
// an encoder of maps writes them, and one of structs.
func BenchmarkLargeBody(b *testing.B) {
	in := shared(b).instance(nil, &idempotency.Options{SingleTenant: true, CacheFor: 1 << 40})
	const size = 1 << 20
	list := func(element string) []byte {
		return []byte("[" + strings.Repeat(element+",", size/(len(element)+1)) + element + "]")
	}
	for kind, body := range map[string][]byte{
		"numbers": []byte("[" + strings.Repeat("1,", size/2-2) + "1]"),
		"maps":    list(`{"amount":1250,"currency":"EUR","items":[{"count":2,"name":"a book"}],"to":"acct_17"}`),
		"structs": list(`{"to": "acct_17", "amount": 1250, "currency": "EUR", "items": [{"name": "a book", "count": 2}]}`),
	} {
		for name, payload := range map[string]func(*http.Request, []byte) (any, error){"Exact": idemhttp.Exact, "CanonicalJSON": idemhttp.CanonicalJSON} {
			h := in.middleware(&idemhttp.Options{Payload: payload, MaxRequest: 2 * size})(http.HandlerFunc(paid))
			serve := func() *sink {
				r := httptest.NewRequest(http.MethodPost, "/payments", bytes.NewReader(body))
				r.Header.Set("Idempotency-Key", `"`+kind+name+`"`)
				w := &sink{h: http.Header{}}
				h.ServeHTTP(w, r)
				return w
			}
			require.Equal(b, http.StatusCreated, serve().status)
			require.NotEmpty(b, serve().h.Get("Idempotent-Replayed"))
			b.Run(kind+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					serve()
				}
			})
		}
	}
}

// BenchmarkNew is a new request through the middleware, on a real etcd, beside the store's
// claim and commit alone.
func BenchmarkNew(b *testing.B) {
	in := shared(b).instance(nil, nil)
	h := in.middleware(nil)(http.HandlerFunc(paid))
	n := 0
	b.Run("middleware", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n++
			r := httptest.NewRequest(http.MethodPost, "/payments", bytes.NewReader([]byte("body")))
			r.Header.Set("Idempotency-Key", `"`+strconv.Itoa(n)+`"`)
			w := &sink{h: http.Header{}}
			if h.ServeHTTP(w, r); w.status != http.StatusCreated {
				b.Fatal(w.status)
			}
		}
	})
	b.Run("store alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n++
			a, _, err := in.Begin(b.Context(), idempotency.Key{Op: "bench", ID: strconv.Itoa(n)}, "payload")
			if err == nil {
				err = a.Commit(b.Context(), []byte(`{"paid":1}`))
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkLargeResponse is a new request whose response is a mebibyte, written in pieces, on
// a real etcd. The memory is also that of the etcd in this process; "store alone" has the
// part of it that is not the middleware's.
func BenchmarkLargeResponse(b *testing.B) {
	in := shared(b).instance(nil, &idempotency.Options{SingleTenant: true, CacheBytes: -1})
	piece, pieces := bytes.Repeat([]byte("x"), 32<<10), 31
	n := 0
	for _, declared := range []bool{false, true} {
		h := in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if declared {
				w.Header().Set("Content-Length", strconv.Itoa(pieces*len(piece)))
			}
			for range pieces {
				_, _ = w.Write(piece)
			}
		}))
		b.Run("middleware/declared="+strconv.FormatBool(declared), func(b *testing.B) {
			b.SetBytes(int64(pieces * len(piece)))
			b.ReportAllocs()
			for b.Loop() {
				n++
				r := httptest.NewRequest(http.MethodPost, "/reports", strings.NewReader("body"))
				r.Header.Set("Idempotency-Key", `"large-`+strconv.Itoa(n)+`"`)
				w := &sink{h: http.Header{}}
				if h.ServeHTTP(w, r); w.status != http.StatusOK {
					b.Fatal(w.status)
				}
			}
		})
	}
	b.Run("store alone", func(b *testing.B) {
		result := bytes.Repeat(piece, pieces)
		b.SetBytes(int64(len(result)))
		b.ReportAllocs()
		for b.Loop() {
			n++
			a, _, err := in.Begin(b.Context(), idempotency.Key{Op: "large", ID: strconv.Itoa(n)}, "payload")
			if err == nil {
				err = a.Commit(b.Context(), result)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
