package console_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
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
