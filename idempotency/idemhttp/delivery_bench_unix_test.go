//go:build unix

package idemhttp_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// Flush implements http.Flusher.
func (s *sink) Flush() {}

// processor returns the processor time that this process has used, in nanoseconds.
func processor(b *testing.B) float64 {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStreamed is a response that is sent while its attempt is in progress, of the middleware beside the handler alone:
// with "sink" the ResponseWriter costs nothing, "server" is one of net/http with a client. A response has so many parts that
// its claim and its commit hardly count; its body is not recorded. "buffered" is recorded, and sent at once after that.
func BenchmarkStreamed(b *testing.B) {
	in := shared(b).instance(nil, &idempotency.Options{SingleTenant: true, CacheBytes: -1})
	for _, of := range []struct {
		name         string
		bytes, parts int
		flush        bool
	}{{"buffered", 64, 1000, false}, {"flushed", 64, 5000, true}, {"flushed-4KiB", 4 << 10, 5000, true}, {"large", 32 << 10, 2000, false}} {
		part, opts := bytes.Repeat([]byte("x"), of.bytes), &idemhttp.Options{MaxResponse: 64}
		if of.name == "buffered" {
			opts = nil
		}
		alone := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			ctl := http.NewResponseController(w)
			for range of.parts {
				_, _ = w.Write(part)
				if of.flush {
					_ = ctl.Flush()
				}
			}
		})
		for _, h := range []struct {
			name string
			http.Handler
		}{{"alone", alone}, {"middleware", in.middleware(opts)(alone)}} {
			b.Run(of.name+"/sink/"+h.name, func(b *testing.B) {
				streamed(b, of.parts, func(r *http.Request) { h.ServeHTTP(&sink{h: http.Header{}}, r) })
			})
			b.Run(of.name+"/server/"+h.name, func(b *testing.B) {
				s := httptest.NewServer(h)
				defer s.Close()
				streamed(b, of.parts, func(r *http.Request) {
					r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", s.Listener.Addr().String()
					resp, err := s.Client().Do(r)
					require.NoError(b, err)
					got, err := io.Copy(io.Discard, resp.Body)
					require.NoError(b, err)
					require.Equal(b, int64(of.parts*of.bytes), got)
					require.NoError(b, resp.Body.Close())
				})
			})
		}
	}
}

// streamedKey is the last key of BenchmarkStreamed.
var streamedKey int

func streamed(b *testing.B, parts int, serve func(*http.Request)) {
	b.ReportAllocs()
	before := processor(b)
	for b.Loop() {
		streamedKey++
		r := httptest.NewRequest(http.MethodPost, "/events", strings.NewReader("body"))
		r.Header.Set("Idempotency-Key", `"streamed-`+strconv.Itoa(streamedKey)+`"`)
		serve(r)
	}
	b.ReportMetric((processor(b)-before)/float64(b.N*parts), "cpu-ns/part")
}
