package limithttp_test

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// lose evicts the permit under which a request runs, and returns when its context has ended.
func (in instance) lose(t *testing.T, r *http.Request) {
	p, _ := limithttp.FromContext(r.Context())
	if err := in.Key("acme").EvictToken(ctxT(t), p.Token(), "test"); err != nil {
		t.Error(err)
	}
	<-r.Context().Done()
}

// TestOwnProblemOfALostPermit: what a handler has said of the body of its own response is not said of the answer that takes
// its place (A262 and A303 in internal/proof/tested-failures.md). Other fields, as of a middleware in front, stay.
func TestOwnProblemOfALostPermit(t *testing.T) {
	t.Parallel()
	described := map[string]string{
		"Content-Length": "1000", "Content-Encoding": "br", "Content-Disposition": "attachment", "Content-Range": "bytes 0-999/1000",
		"Content-Digest": "sha-256=:AA==:", "Repr-Digest": "sha-256=:AA==:", "Content-Location": "/other", "ETag": `"1"`,
		"Last-Modified": "Sun, 29 Nov 2026 12:00:00 GMT", "Accept-Ranges": "bytes", "Trailer": "Checksum",
	}
	for name, change := range map[string]func(*limithttp.Options){
		"OnProblem": func(o *limithttp.Options) {
			o.OnProblem = func(w http.ResponseWriter, _ *http.Request, p limithttp.Problem) {
				w.WriteHeader(p.Status)
				_, _ = w.Write([]byte(p.Code))
			}
		},
		"by default": func(*limithttp.Options) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			s := in.serve(options(change), func(w http.ResponseWriter, r *http.Request) {
				for field, value := range described {
					w.Header().Set(field, value)
				}
				w.Header().Set("X-Frame-Options", "DENY")
				in.lose(t, r)
			})
			re := s.get("acme")
			require.Contains(t, re.body, string(limithttp.CodeLost))
			require.Equal(t, "DENY", re.Header.Get("X-Frame-Options"))
			require.Empty(t, re.Trailer)
			for field, value := range described {
				require.NotEqual(t, value, re.Header.Get(field), field)
			}
		})
	}
}

// TestLostPermitOfAnEmptyCopy: a handler that copies the response of another service has given none itself if that breaks
// off, since the permit was lost, before its first byte (A303): it was an empty 200.
func TestLostPermitOfAnEmptyCopy(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := in.serve(options(), func(w http.ResponseWriter, r *http.Request) {
		if _, reads := w.(io.ReaderFrom); !reads {
			t.Error("the copy is no ReadFrom")
		}
		in.lose(t, r)
		if _, err := io.Copy(w, failing{r.Context()}); err == nil {
			t.Error("the copy has ended")
		}
	})
	re := s.get("acme")
	require.Equal(t, http.StatusInternalServerError, re.StatusCode)
	require.Equal(t, limithttp.CodeLost, re.problem(t).Code)
}

// A676: a request whose permit was lost while its handler ran may have taken effect: its answer is no 503, which proxies
// repeat by themselves and clients of gRPC read as UNAVAILABLE, and does not say when to come back. One that was evicted from
// the queue has not begun, and its answer says both.
func TestLostRequestIsNotRepeated(t *testing.T) {
	t.Parallel()
	in := newInstance(t, 1)
	s := in.serve(options(wait(time.Hour)), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "1") // of a handler that was about to refuse
		in.lose(t, r)
	})
	re := s.get("acme")
	require.Equal(t, http.StatusInternalServerError, re.StatusCode)
	p := re.problem(t)
	require.Equal(t, limithttp.CodeLost, p.Code)
	require.Equal(t, "It may have taken effect.", p.Detail)
	require.NotContains(t, re.Header, "Retry-After")

	in.take("acme")
	ends := make(chan reply, 1)
	go func() { ends <- s.get("acme") }()
	in.waiters("acme", 1)
	st, err := in.Key("acme").Status(ctxT(t))
	require.NoError(t, err)
	require.NoError(t, in.Key("acme").EvictToken(ctxT(t), st.Waiters[0].Token, "test"))
	re = testkit.Got(t, ends, "the request that waited")
	require.Equal(t, http.StatusServiceUnavailable, re.StatusCode)
	p = re.problem(t)
	require.Equal(t, limithttp.CodeLost, p.Code)
	require.Equal(t, "It has lost its place in the queue, and has not begun.", p.Detail)
	require.NotEmpty(t, re.Header.Get("Retry-After"))
}

// TestLostPermitBehindAnEncoder: the fields of a middleware in front describe what that does with a body, and stay as they
// were before the handler (A327 in internal/proof/tested-failures.md): the answer to a lost permit was compressed, and did
// not say so. What the handler has said of its own body goes, also in place of theirs.
func TestLostPermitBehindAnEncoder(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(http.Header){
		"as it is": func(http.Header) {},
		"changed": func(h http.Header) {
			h.Set("Content-Encoding", "br")
			h.Set("Trailer", "Checksum")
			h.Set("ETag", `"1"`)
		},
		"removed": func(h http.Header) { h.Del("Content-Encoding"); h.Del("Trailer") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInstance(t, 1)
			h := middleware(t, in, options())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				change(w.Header())
				in.lose(t, r)
			}))
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				w.Header().Set("Trailer", "Took")
				z := gzip.NewWriter(w)
				h.ServeHTTP(encoded{w, z}, r)
				if err := z.Close(); err != nil {
					t.Error(err)
				}
				w.Header().Set("Took", "1s")
			}))
			t.Cleanup(s.Close)
			r, err := http.NewRequestWithContext(ctxT(t), http.MethodGet, s.URL, nil)
			require.NoError(t, err)
			r.Header.Set("Tenant", "acme")
			resp, err := s.Client().Do(r) // decompresses what says that it is compressed
			require.NoError(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
			require.Equal(t, limithttp.CodeLost, reply{resp, string(body)}.problem(t).Code)
			require.Equal(t, http.Header{"Took": {"1s"}}, resp.Trailer)
			require.Empty(t, resp.Header.Get("ETag"))
		})
	}
}

// encoded is the writer of a middleware in front that compresses.
type encoded struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (e encoded) Write(p []byte) (int, error) { return e.z.Write(p) }

// failing is a body that breaks off with its context.
type failing struct{ ctx context.Context }

func (f failing) Read([]byte) (int, error) { return 0, context.Cause(f.ctx) }
