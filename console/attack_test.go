package console_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// No answer leads out of the path below which the console is mounted.
func TestRedirectsStayBelowThePath(t *testing.T) {
	t.Parallel()
	f := testkit.Shared(t)
	sess, _ := f.Session(&concurrency.SessionOptions{Owner: "console"})
	h, err := console.Handler(sess, nil)
	require.NoError(t, err)
	for path, want := range map[string]int{
		"": 303, "/": 200, "/jobs": 200, "//": 404, "//queue?name=x": 404, "/./jobs": 404, "/x/../jobs": 404, "//evil.example/": 404, "/static/../jobs": 404, "/jobs/": 404, "/static/": 404,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/ops"+path, nil)
		r.Host = "localhost"
		http.StripPrefix("/ops", h).ServeHTTP(w, r)
		to := w.Header().Get("Location")
		require.True(t, to == "" || to == "/ops/", "%s leads to %s", path, to)
		require.Equal(t, want, w.Code, path)
	}
}

// A viewer that may not read does not learn the namespace.
func TestRefusalNamesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops", &console.Options{Authorize: func(*http.Request, console.Action) error { return errors.New("log in") }})
	for _, path := range []string{"/", "/jobs", "/queue?name=semaphore/x", "/confirm?do=evict&name=semaphore/x&target=1", "/confirm?do=nothing", "/nowhere"} {
		a := s.get(path)
		require.NotContains(t, a.body, strings.TrimPrefix(s.Root, "/"), path)
	}
}

// A key that a form cannot have is not changed by a form: it would change another key.
func TestKeysThatFormsCannotHave(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops", &console.Options{Authorize: all})
	lim, err := concurrency.NewKeyedLimiter(s.session("web-7"), "api", 1, nil)
	require.NoError(t, err)
	for _, key := range []string{"a\xff", "a\nb", "a\r\nb"} {
		_, err = lim.Key(key).Acquire(testkit.Context(t))
		require.NoError(t, err)
		name := "limiter/api/" + key
		require.Equal(t, 400, s.get("/confirm?do=set-limit&name="+url.QueryEscape(name)).StatusCode, "%q", key)
		require.Equal(t, 400, s.post(url.Values{"do": {"set-limit"}, "name": {name}, "confirm": {name}, "value": {"5"}}).StatusCode, "%q", key)
	}
}
