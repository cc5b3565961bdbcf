package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// names returns the first cells of the rows of all tables of a page, in order.
func names(body string) (all []string) {
	for _, row := range regexp.MustCompile(`(?s)<th scope="row">.*?<bdi>(.*?)</bdi>`).FindAllStringSubmatch(body, -1) {
		all = append(all, row[1])
	}
	return all
}

// Each figure of the overview leads to exactly what it counts (A186 in internal/proof/tested-failures.md).
func TestFiguresLeadToWhatTheyCount(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	ctx := testkit.Context(t)
	for i := range 3 {
		s.acquire(s.semaphore("web-7", fmt.Sprint("calm-", i), 5))
	}
	full := s.semaphore("web-7", "full", 1)
	s.acquire(full)
	s.wait(full, 1)
	paused := s.semaphore("web-7", "paused", 2)
	s.acquire(paused)
	require.NoError(t, paused.SetLimit(ctx, 0))
	late := s.semaphore("web-7", "late", 2)
	// MaxHold ends the permit by its process; a value that is older shows what a process that hangs leaves behind.
	s.acquire(late)
	for key, value := range s.Values("") {
		if strings.Contains(key, "/semaphore/late/queue/") {
			kv := regexp.MustCompile(`"at":\d+`).ReplaceAllString(value, `"at":1000,"max_hold_ms":1`)
			_, err := s.NewClient(t, nil).Put(ctx, key, kv, clientv3.WithIgnoreLease())
			require.NoError(t, err)
		}
	}
	space, err := keyspace.New(s.Root, "test")
	require.NoError(t, err)
	_, err = s.NewClient(t, nil).Put(ctx, space.Queue(keyspace.Semaphore, "calm-1").Requests+"stray", "x")
	require.NoError(t, err)
	s.job("failing", errors.New("the disk is full"))
	l := s.job("resting", nil)
	require.NoError(t, l.Pause(ctx, "resting", "x"))
	s.lose("orders", "K-1")
	s.lose("orders", "K-2")

	fast := s.session("web-fast")
	_, err = s.NewClient(t, nil).Put(ctx, space.Session(int64(fast.Lease())).Alive(), record.Clock{Owner: "web-fast", AtMS: time.Now().Add(time.Hour).UnixMilli()}.Encode(), clientv3.WithIgnoreLease())
	require.NoError(t, err)

	body := ""
	require.Eventually(t, func() bool { body = s.page("/"); return strings.Contains(body, "held too long</a>") }, testkit.Soon, 50*time.Millisecond)
	for text, want := range map[string][]string{
		"1 paused":                      {"semaphore/paused"},
		"1 permit held too long":        {"semaphore/late"},
		"1 foreign key":                 {"semaphore/calm-1"},
		"1 at its limit":                {"semaphore/full"},
		"1 failed run of 1 job":         {"failing"},
		"Waiting":                       {"semaphore/full"},
		"Requests of unknown outcome":   {"orders"},
		"1 clock differs":               {"web-fast"},
		"Elections without a candidate": nil,
	} {
		link := regexp.MustCompile(`<a[^>]* href="([^"]*)">` + regexp.QuoteMeta(text) + `</a>`).FindStringSubmatch(body)
		require.NotNil(t, link, text)
		require.Equal(t, want, names(s.page("/"+link[1])), text)
	}
	require.Contains(t, body, fmt.Sprintf(`<a href="process?name=%016x"><bdi>web-fast</bdi></a></th><td data-th="What">process</td>`, fast.Lease()), "a clock that differs is a problem, and leads to its process")
	require.Equal(t, "web-fast", names(s.page("/sessions"))[0], "problems are first")
	require.NotEqual(t, "web-fast", names(s.page("/sessions?sort=old"))[0])
	require.Contains(t, s.page(fmt.Sprintf("/process?name=%016x", fast.Lease())), `<span class="mark warn">`)
	require.Equal(t, []string{"resting"}, names(s.page("/jobs?show=paused")))
	require.Len(t, names(s.page("/queues?kind=semaphore")), 6)
	require.Empty(t, names(s.page("/queues?kind=mutex")))
	require.Equal(t, "semaphore/paused", names(s.page("/queues"))[0], "problems are first")
	require.Equal(t, "semaphore/calm-0", names(s.page("/queues?sort=name"))[0])
	require.Equal(t, "semaphore/full", names(s.page("/queues?sort=waiting"))[0])
	require.Len(t, names(s.page("/queues?show=nonsense")), 6, "all of them")
	require.Contains(t, s.page("/stores?show=refused"), `href="store?name=orders&only=refused">2</a>`)
	require.Contains(t, s.page("/store?name=orders&only=refused"), "Records 1 to 2 of 2")
}

// What an operator has of a fault (a name, an owner, a note, a token, a lease, a scope, a reference) leads to its page.
func TestSearch(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops", nil)
	sess := s.session("Web-7")
	sm, err := concurrency.NewSemaphore(sess, "charge", 1, nil)
	require.NoError(t, err)
	p := s.acquire(sm, concurrency.Note("order 4711 für"), concurrency.ID("req-9"))
	s.wait(s.semaphore("web-9", "charge", 1), 1, concurrency.Note("order 4712"))
	lim, err := concurrency.NewKeyedLimiter(sess, "api", 5, nil)
	require.NoError(t, err)
	s.acquire(lim.Key("acme/eu"))
	s.job("invoices", nil)
	ref := s.lose("orders", "K-1")
	store, err := idempotency.NewStore(sess, "orders", nil)
	require.NoError(t, err)
	_, _, err = store.Begin(testkit.Context(t), idempotency.Key{Scope: "globex", Op: "POST /payments", ID: "K-2"}, nil, idempotency.Note("Invoice 4713"))
	require.NoError(t, err)
	noted := store.Ref(idempotency.Key{Scope: "globex", Op: "POST /payments", ID: "K-2"})
	lease := fmt.Sprintf("%016x", sess.Lease())
	for query, want := range map[string][]string{
		"CHARGE":              {"semaphore/charge"},
		"order 4711":          {`queue?name=semaphore%2Fcharge`, "Web-7 holds, req-9, order 4711 für"},
		"FÜR":                 {"Web-7 holds"},
		"req-9":               {"Web-7 holds"},
		"order 4712":          {"web-9 waits"},
		"web-7":               {"process?name=" + lease, "Web-7 holds"},
		lease:                 {"process?name=" + lease},
		fmt.Sprint(p.Token()): {"Web-7 holds"},
		"acme/eu":             {"limiter/api/acme/eu"},
		"invoic":              {"job?name=invoices"},
		"order":               {"store?name=orders"},
		"acme":                {"1 request of the scope acme", "store?name=orders&amp;scope=acme"},
		string(ref)[:20]:      {"store?name=orders&amp;ref="},
		string(ref):           {string(ref)},
		"invoice 4713":        {string(noted), "in the store orders, Invoice 4713"},
		"nothing has this":    {"Nothing here that you may see has <bdi>nothing has this</bdi>"},
	} {
		body := s.page("/search?q=" + url.QueryEscape(query))
		for _, text := range want {
			require.Contains(t, body, text, query)
		}
		for _, link := range regexp.MustCompile(`<th scope="row"><a href="([^"]*)"`).FindAllStringSubmatch(body, -1) {
			s.page("/" + strings.ReplaceAll(link[1], "&amp;", "&"))
		}
	}
	require.Contains(t, s.page("/store?name=orders&scope=acme"), "Records 1 to 1 of 1")
	require.Contains(t, s.page("/store?name=orders&ref="+url.QueryEscape(string(ref))), string(ref))
	require.NotContains(t, s.page("/store?name=orders&scope=initech"), string(ref))
	require.Contains(t, s.page("/search"), "A search finds names")
}

// A search, the page of a process and the names beside a page show nothing of what Authorize refuses (A187 in
// internal/proof/tested-failures.md).
func TestFindsNothingUnread(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: func(r *http.Request, a console.Action) error {
		if strings.Contains(a.Name, "secret") || a.Name == "" && r.Header.Get("X-Lists") == "" {
			return errors.New("not for you")
		}
		return nil
	}})
	sess := s.session("web-7")
	lists := func(r *http.Request) { r.Header.Set("X-Lists", "1") }
	for _, name := range []string{"open", "other", "secret"} {
		sm, err := concurrency.NewSemaphore(sess, name, 1, nil)
		require.NoError(t, err)
		s.acquire(sm, concurrency.Note("note of "+name))
		s.wait(sm, 1)
	}
	l, err := schedlock.New(sess, nil)
	require.NoError(t, err)
	_, err = l.Job("secret-job", schedlock.Periods(time.Hour), func(context.Context, *schedlock.Run) error { return nil })
	require.NoError(t, err)
	store, err := idempotency.NewStore(sess, "secrets", nil)
	require.NoError(t, err)
	key := idempotency.Key{Scope: "web-7", Op: "POST /payments", ID: "K-1"}
	_, _, err = store.Begin(testkit.Context(t), key, nil, idempotency.Note("note of secret"))
	require.NoError(t, err)
	process := fmt.Sprintf("/process?name=%016x", sess.Lease())
	for _, path := range []string{"/search?q=web-7", "/search?q=secret", "/search?q=note", "/search?q=" + url.QueryEscape(string(store.Ref(key))), process} {
		a := s.get(path, lists)
		require.Equal(t, http.StatusOK, a.StatusCode, a.body)
		require.NotContains(t, strings.ReplaceAll(a.body, `value="secret"`, ""), "note of secret", path)
		require.NotContains(t, a.body, "semaphore/secret", path)
		require.NotContains(t, a.body, "secret-job", path)
		require.NotContains(t, a.body, "secrets", path)
	}
	require.Contains(t, s.get("/search?q=web-7", lists).body, "note of open")
	require.Contains(t, s.get(process, lists).body, "note of open")
	require.Equal(t, http.StatusForbidden, s.get("/search?q=web-7").StatusCode)
	beside := s.get("/queue?name=semaphore/open", lists).body
	require.Contains(t, beside, `id="side"`)
	require.NotContains(t, beside, "semaphore/secret")
	alone := s.get("/queue?name=semaphore/open")
	require.Equal(t, http.StatusOK, alone.StatusCode)
	require.NotContains(t, alone.body, `id="side"`, "a viewer of one queue sees no other names")
	require.NotContains(t, alone.body, "semaphore/secret")
}
