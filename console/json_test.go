package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// Each page is JSON for a program that asks for it, under the same rules, and with a tag of its own.
func TestJSON(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops", nil)
	s.acquire(s.semaphore("web-7", "charge", 3), concurrency.Note("</script><b>"))
	s.job("invoices", nil)
	s.lose("orders", "K-1")
	asked := func(r *http.Request) { r.Header.Set("Accept", "application/json") }
	for _, path := range []string{"/", "/queues", "/queue?name=semaphore/charge", "/elections", "/jobs", "/job?name=invoices", "/stores", "/store?name=orders", "/sessions", "/changes", "/doctor", "/search?q=web-7"} {
		a := s.get(path, asked)
		require.Equal(t, http.StatusOK, a.StatusCode, path)
		require.Equal(t, "application/json", a.Header.Get("Content-Type"))
		require.Equal(t, "Accept", a.Header.Get("Vary"))
		require.NotEqual(t, s.get(path).Header.Get("ETag"), a.Header.Get("ETag"), "a cache must not take one for the other")
		require.NotContains(t, a.body, "<b>")
		var page struct {
			Namespace, Title string
			AsOf             time.Time
			Data             json.RawMessage
		}
		require.NoError(t, json.Unmarshal([]byte(a.body), &page), path)
		require.Contains(t, page.Namespace, "/test/")
		require.False(t, page.AsOf.IsZero())
		require.Greater(t, len(page.Data), 2, path)
		both := "?"
		if strings.Contains(path, "?") {
			both = "&"
		}
		require.Equal(t, "application/json", s.get(path+both+"format=json").Header.Get("Content-Type"))
	}
	var page struct {
		Data struct {
			Holders struct{ Rows []struct{ Owner string } }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.get("/queue?name=semaphore/charge", asked).body), &page))
	require.Equal(t, "web-7", page.Data.Holders.Rows[0].Owner)
	missing := s.get("/job?name=none", asked)
	require.Equal(t, http.StatusNotFound, missing.StatusCode)
	require.Equal(t, "application/json", missing.Header.Get("Content-Type"))
	var failed struct{ Error string }
	require.NoError(t, json.Unmarshal([]byte(missing.body), &failed))
	require.Contains(t, failed.Error, "none")

	writes := open(t, "", &console.Options{Authorize: all})
	writes.acquire(writes.semaphore("web-7", "charge", 3))
	require.NotEqual(t, "application/json", writes.get("/confirm?do=set-limit&name=semaphore/charge&format=json").Header.Get("Content-Type"), "a form is for a person")
}

// absent are the members that are null where a page has no such thing. All others are there.
var absent = []string{"Blocker", "Keys", "Rate", "Paused", "Strip"}

// nulls returns the members of a JSON value that are null, but for those.
func nulls(at string, v any) (found []string) {
	switch v := v.(type) {
	case nil:
		return []string{at}
	case []any:
		for _, of := range v {
			found = append(found, nulls(at+"[]", of)...)
		}
	case map[string]any:
		for name, of := range v {
			if of != nil || !slices.Contains(absent, name) {
				found = append(found, nulls(at+"."+name, of)...)
			}
		}
	}
	return found
}

// A list that has nothing is [] on each page, of a namespace with nothing and of one with a little
// (A316 in internal/proof/tested-failures.md).
func TestJSONHasNoNullLists(t *testing.T) {
	t.Parallel()
	idle, s := open(t, "", nil), open(t, "", nil)
	sess := s.session("web-7")
	sm, err := concurrency.NewSemaphore(sess, "charge", 3, nil)
	require.NoError(t, err)
	require.NoError(t, s.acquire(sm).Release(testkit.Context(t)))
	s.job("invoices", nil)
	s.lose("orders", "K-1")
	subjects := map[string]string{"queue": "semaphore/charge", "job": "invoices", "store": "orders", "process": fmt.Sprintf("%016x", sess.Lease())}
	for _, path := range console.LivePages() {
		missing := []*site{idle}
		query := url.Values{"format": {"json"}}
		if name := subjects[path]; name != "" {
			missing = nil
			query.Set("name", name)
		}
		for _, of := range append(missing, s) {
			a := of.get("/" + path + "?" + query.Encode())
			require.Equal(t, http.StatusOK, a.StatusCode, "%s: %s", path, a.body)
			var page any
			require.NoError(t, json.Unmarshal([]byte(a.body), &page))
			require.Empty(t, nulls(path, page), path)
		}
	}
}
