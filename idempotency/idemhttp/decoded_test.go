package idemhttp_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// I14: a body that was decoded in front is longer or shorter than its length says. What the
// handler reads counts. One that was read in front is still noticed.
func TestBodyDecodedInFront(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	coded := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := io.WriteString(z, text)
		require.NoError(t, err)
		require.NoError(t, z.Close())
		return b.String()
	}
	short, long := `{"cents":1}`, strings.Repeat(`{"cents":1}`, 1000)
	require.Less(t, len(short), len(coded(short)))
	require.Greater(t, len(long), len(coded(long)))
	for name, front := range map[string]func(w http.ResponseWriter, r *http.Request){
		"keeps the headers": func(http.ResponseWriter, *http.Request) {},
		"removes the headers": func(_ http.ResponseWriter, r *http.Request) {
			r.Header.Del("Content-Encoding")
			r.Header.Del("Content-Length")
		},
		"says the length": func(_ http.ResponseWriter, r *http.Request) {
			r.Header.Del("Content-Encoding")
			r.Header.Del("Content-Length")
			r.ContentLength = -1
		},
		"limits": func(w http.ResponseWriter, r *http.Request) { r.Body = http.MaxBytesReader(w, r.Body, 1<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			mw := in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(w, r.Body)
				require.NoError(t, err)
			}))
			s := in.hosting(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				z, err := gzip.NewReader(r.Body)
				require.NoError(t, err)
				r.Body = z
				front(w, r)
				mw.ServeHTTP(w, r)
			}))
			gzipped := header("Content-Encoding", "gzip")
			for n, text := range []string{short, long} {
				key := strings.ReplaceAll(name, " ", "-") + string(rune('a'+n))
				re := s.post("/", key, coded(text), gzipped)
				require.Equal(t, http.StatusOK, re.StatusCode, re.body)
				require.Equal(t, text, re.body)
				require.True(t, s.post("/", key, coded(text), gzipped).replayed())
				require.Equal(t, idemhttp.CodeReused, s.post("/", key, coded(text+"x"), gzipped).problem(t).Code)
			}
		})
	}

	mw := in.middleware(nil)(http.HandlerFunc(paid))
	for name, read := range map[string]int64{"all": 1 << 20, "a part": 5} {
		s := in.hosting(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, read)
			mw.ServeHTTP(w, r)
		}))
		require.Equal(t, idemhttp.CodeInternal, s.post("/", "k", "the body").problem(t).Code, name)
		if name == "all" {
			require.Equal(t, idemhttp.CodeInternal, s.post("/", "k", coded(short), header("Content-Encoding", "gzip")).problem(t).Code, name)
		}
	}
}
