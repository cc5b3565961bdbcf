package stored

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A393: where the console shows a value, one of a later version is not shown as one that does not exist. A dialog asked an
// operator to confirm a new limit in place of none.
func TestConsoleShowsLaterVersions(t *testing.T) {
	t.Parallel()
	r := reads(t, golden(t, "0.1.0"), OfVersion2)
	h, err := console.Handler(r.sess, &console.Options{Authorize: func(*http.Request, console.Action) error { return nil }})
	require.NoError(t, err)
	page := func(path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(testkit.Context(t), http.MethodGet, "http://localhost/"+path, nil))
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body)
		body := html.UnescapeString(w.Body.String())
		for _, absent := range []string{"is stored", "has stored", "There is no total", "no process", "There is no recorded", "No queue", "No job", "No store", "etcd has nothing"} {
			require.NotContains(t, body, absent, path)
		}
		return body
	}
	named := func(view, name string) string { return view + "?name=" + url.QueryEscape(name) }
	for path, says := range map[string]string{
		named("queue", "semaphore/charge"):                             "semaphore/charge/limit is of a later release",
		named("queue", "limiter/api"):                                  "limiter/api/default is of a later release",
		named("queue", "limiter/api/tenant-7"):                         "limiter/api/key/tenant-7/limit is of a later release",
		named("queue", "rate/mail"):                                    "rate/mail/limit is of a later release",
		named("confirm", "semaphore/charge") + "&do=set-limit":         "semaphore/charge/limit is of a later release",
		named("confirm", "limiter/api") + "&do=set-limit":              "limiter/api/default is of a later release",
		named("confirm", "limiter/api") + "&do=set-limit&target=total": "limiter/api/total/limit is of a later release",
		named("confirm", "sweep") + "&do=resume":                       "job/sweep/pause is of a later release",
		named("job", "sweep"):                                          "job/sweep/pause is of a later release",
		named("job", "nightly"):                                        "job/nightly/settings is of a later release",
		"queues":                                                       "unreadable",
		"changes":                                                      "cannot be read here",
		"":                                                             "", "jobs": "reports", "stores": "orders", "sessions": "", "elections": "ingest", named("store", "orders"): "unreadable",
	} {
		require.Contains(t, page(path), says, path)
	}
}
