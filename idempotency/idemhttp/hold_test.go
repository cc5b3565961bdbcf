package idemhttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A client does not have a whole response before it is recorded (A234 in internal/proof/tested-failures.md): one whose end
// it sees without its connection, by the Content-Length, the status or the last frame, was complete with a Flush, or when
// it was larger than MaxResponse, and the client kept it although another attempt was begun.
func TestEndIsKeptBack(t *testing.T) {
	t.Parallel()
	const frames = "\x00\x00\x00\x00\x02hi\x80\x00\x00\x00\x10grpc-status: 0\r\n"
	flush := func(w http.ResponseWriter) { require.NoError(t, http.NewResponseController(w).Flush()) }
	for name, c := range map[string]struct {
		body    string
		begun   bool // a part of the response arrives
		respond func(w http.ResponseWriter, body string)
	}{
		"a length, in parts": {"hello", true, func(w http.ResponseWriter, body string) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, body[:2])
			flush(w)
			_, _ = io.WriteString(w, body[2:])
			flush(w)
		}},
		"a length, at once": {"hello", true, func(w http.ResponseWriter, body string) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, body)
			flush(w)
		}},
		"one byte": {"h", true, func(w http.ResponseWriter, body string) {
			w.Header().Set("Content-Length", "1")
			flush(w)
			_, _ = io.WriteString(w, body)
			flush(w)
		}},
		"larger than MaxResponse": {strings.Repeat("x", 300_000), true, func(w http.ResponseWriter, body string) {
			w.Header().Set("Content-Length", "300000")
			_, _ = io.WriteString(w, body[:100])
			_, _ = io.WriteString(w, body[100:])
		}},
		"the last frame": {frames, true, func(w http.ResponseWriter, body string) {
			w.Header().Set("Content-Type", "application/grpc-web+proto")
			_, _ = io.WriteString(w, body)
			flush(w)
		}},
		"no content": {"", false, func(w http.ResponseWriter, _ string) {
			w.WriteHeader(http.StatusNoContent)
			flush(w)
		}},
		"a length of zero": {"", false, func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Length", "0")
			flush(w)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			in, other := f.instance(nil, nil), f.instance(nil, nil).serve(nil, paid)
			s := in.serve(&idemhttp.Options{MaxResponse: 1000}, func(w http.ResponseWriter, r *http.Request) {
				c.respond(w, c.body)
				if r.URL.Path == "/lost" {
					require.NoError(t, f.ExpireLease(ctxT(t), in.sess.Lease()))
					<-r.Context().Done()
					require.Eventually(t, func() bool { return other.post("/lost", "lost", "").StatusCode == http.StatusCreated }, soon, 10*time.Millisecond)
				}
			})
			re := s.post("/", "k", "")
			require.Equal(t, c.body, re.body)
			if len(c.body) < 1000 {
				re = s.post("/", "k", "")
				require.True(t, re.replayed())
				require.Equal(t, c.body, re.body)
			}
			re, err := s.send(s.request("/lost", "lost", ""))
			if !c.begun {
				require.NoError(t, err)
				require.Equal(t, idemhttp.CodeInProgress, re.problem(t).Code)
				return
			}
			require.Error(t, err)
			require.Less(t, len(re.body), len(c.body))
		})
	}
}

// A288: a handler in front recovers the panic by which a streamed response breaks off, and its client had a whole response
// that was not the outcome. So it had where the handler itself panics.
func TestBreaksOffBehindARecoverer(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		for name, ends := range map[string]func(r *http.Request){
			"its outcome is refused": func(r *http.Request) {
				a, _ := idempotency.FromContext(r.Context())
				a.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("/no/such/key"), ">", 0)})
			},
			"it panics": func(*http.Request) { panic("bug") },
		} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, h2), func(t *testing.T) {
				t.Parallel()
				mw := shared(t).instance(nil, nil).middleware(nil)
				once := mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(w, "charged")
					assert.NoError(t, http.NewResponseController(w).Flush())
					ends(r)
				}))
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() { _ = recover() }()
					once.ServeHTTP(w, r)
				}))
				s.EnableHTTP2 = h2
				s.StartTLS()
				defer s.Close()
				r, err := http.NewRequestWithContext(ctxT(t), http.MethodPost, s.URL, nil)
				require.NoError(t, err)
				r.Header.Set("Idempotency-Key", "k")
				resp, err := s.Client().Do(r)
				require.NoError(t, err)
				defer resp.Body.Close()
				_, err = io.ReadAll(resp.Body)
				require.Error(t, err)
			})
		}
	}
}
