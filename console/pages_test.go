package console_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// Each page shows what etcd has, below any path, and every link on it leads to a page.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, below := range []string{"", "/ops/etcdkit"} {
		t.Run("below "+below, func(t *testing.T) {
			t.Parallel()
			s := open(t, below, &console.Options{Authorize: all})
			sm := s.semaphore("web-7", "charge", 1)
			p := s.acquire(sm, concurrency.Note("order 12"), concurrency.ID("a"))
			s.wait(s.semaphore("web-9", "charge", 1), 1)
			lim, err := concurrency.NewKeyedLimiter(s.session("web-7"), "api", 5, &concurrency.KeyedLimiterOptions{Total: 9})
			require.NoError(t, err)
			_, err = lim.Key("tenant/x").Acquire(testkit.Context(t))
			require.NoError(t, err)
			el, err := concurrency.NewElection(s.session("leader-1"), "shard")
			require.NoError(t, err)
			_, err = el.Campaign(testkit.Context(t), concurrency.Note("10.0.0.7"))
			require.NoError(t, err)
			s.job("invoices", errors.New("disk is full"))
			ref := s.lose("orders", "K-1")
			led := map[string]bool{} // to a page
			for path, texts := range map[string][]string{
				"/":                                {"semaphore/charge", "1 at its limit", "in 1 queue, the oldest for", "election/shard", "5 per key, 9 in total", "<strong class=\"bad\">1</strong></li>\n<li><a href=\"sessions\">", "1 request of unknown outcome", "last run failed"},
				"/queues":                          {"semaphore/charge", "election/shard", "at the limit", "Queues 1 to 3 of 3"},
				"/queue?name=semaphore/charge":     {"Limit 1, 1 used; 1 waiting", "web-7", "order 12", "1st, behind <bdi>web-7</bdi></td>", "which holds its permit for <time", "(at most)", "process?name=", fmt.Sprint(p.Token()), "do=evict", "do=request-stop", "do=set-limit"},
				"/queue?name=limiter/api":          {"tenant/x", "Limit 5 for each key", "1 key in use, 1 used", "Limit 9, 1 used"},
				"/queue?name=limiter/api/tenant/x": {"Limit 5, 1 used"},
				"/elections":                       {"shard", "leader-1", "10.0.0.7"},
				"/jobs":                            {"invoices", "failed"},
				"/job?name=invoices":               {"disk is full", "web-7", "do=pause"},
				"/stores":                          {"orders"},
				"/store?name=orders":               {string(ref), "POST /payments", "acme", "do=resolve"},
				"/sessions":                        {"web-7", "web-9", "leader-1", "console"},
				"/doctor":                          {"a majority answers reads in", "a majority stores a write in", " voting member", "users are not checked", "the namespace may be read and written", "this console&#39;s session is alive"},
			} {
				body := s.page(path)
				for _, text := range texts {
					require.Contains(t, body, text, path)
				}
				require.Regexp(t, `<a href="[^"]*" aria-current="page">[A-Z]\w+</a></li>`, body, "the tab of %s", path)
				for _, link := range regexp.MustCompile(`(?:href|src|action)="([^"]*)"`).FindAllStringSubmatch(body, -1) {
					to := strings.ReplaceAll(link[1], "&amp;", "&")
					require.NotRegexp(t, `^(/|https?:)`, to, "a link is relative, so that any path will do")
					if to == "action" {
						continue
					}
					if strings.HasPrefix(to, "?") {
						to = strings.TrimPrefix(strings.Split(path, "?")[0], "/") + to
					}
					if to = "/" + strings.TrimPrefix(to, "./"); led[to] {
						continue
					}
					led[to] = true
					require.Equal(t, http.StatusOK, s.get(to).StatusCode, "%s: %s", path, to)
				}
			}
			require.Equal(t, http.StatusNotFound, s.get("/job?name=none").StatusCode)
			for _, path := range []string{"/elsewhere", "/else/where"} {
				missing := s.get(path)
				require.Equal(t, http.StatusNotFound, missing.StatusCode)
				require.Contains(t, missing.body, "no such page")
				up := strings.Repeat("../", strings.Count(path, "/")-1)
				require.Contains(t, missing.body, `<a href="`+up+`jobs">`, "its links lead to the pages")
				require.Contains(t, missing.body, `href="`+up+`static/console.css"`)
			}
			require.Equal(t, http.StatusBadRequest, s.get("/queue?name=x").StatusCode)
			require.Equal(t, http.StatusBadRequest, s.get("/confirm?do=explode&name=x").StatusCode)
			require.Equal(t, http.StatusMethodNotAllowed, s.get("/action").StatusCode)
		})
	}
}

// Without a slash at the end, the console sends the browser to its first page.
func TestSubPathWithoutASlash(t *testing.T) {
	t.Parallel()
	f := testkit.Shared(t)
	sess, _ := f.Session(nil)
	h, err := console.Handler(sess, &console.Options{Hosts: []string{"example.com"}})
	require.NoError(t, err)
	for from, to := range map[string]string{"/ops": "/ops/", "//evil.example": "/evil.example/", "/ops?x=1": "/ops/", "http://localhost/ops": "/ops/"} {
		r, err := http.NewRequest(http.MethodGet, "http://example.com/", nil)
		require.NoError(t, err)
		r.RequestURI, r.URL.Path = from, ""
		w := recorded(h, r)
		require.Equal(t, http.StatusSeeOther, w.Code)
		require.Equal(t, to, w.Header().Get("Location"))
	}
}

// An unchanged page is not sent again, and a changed one is.
func TestETag(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	sm := s.semaphore("web-7", "charge", 3)
	s.acquire(sm)
	tag := ""
	with := func(r *http.Request) { r.Header.Set("If-None-Match", tag) }
	for _, sent := range []string{"%s", "W/%s", `"x", %s`, `"x",W/%s, "y"`} { // as a proxy that compresses sends it
		var again answer
		require.Eventually(t, func() bool { // a sample of its history, or a renewal, changes the page between two reads
			tag = s.get("/queue?name=semaphore/charge").Header.Get("ETag")
			again = s.get("/queue?name=semaphore/charge", func(r *http.Request) { r.Header.Set("If-None-Match", fmt.Sprintf(sent, tag)) })
			return tag != "" && again.StatusCode == http.StatusNotModified
		}, testkit.Soon, 10*time.Millisecond, sent)
		require.Empty(t, again.body)
		require.NotEmpty(t, again.Header.Get("X-As-Of"))
	}
	s.acquire(sm)
	require.Eventually(t, func() bool { return s.get("/queue?name=semaphore/charge", with).StatusCode == http.StatusOK }, testkit.Soon, testkit.Soon/1000)
}

// The style, the script and the icon are sent once: a browser asks whether they have changed.
func TestETagOfStatic(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	tags := map[string]bool{}
	for _, path := range []string{"/static/console.css", "/static/console.js", "/static/icon.svg"} {
		first := s.get(path)
		tag := first.Header.Get("ETag")
		require.NotEmpty(t, tag, path)
		tags[tag] = true
		again := s.get(path, func(r *http.Request) { r.Header.Set("If-None-Match", tag) })
		require.Equal(t, http.StatusNotModified, again.StatusCode, path)
		require.Empty(t, again.body)
		require.Equal(t, http.StatusOK, s.get(path, func(r *http.Request) { r.Header.Set("If-None-Match", `"x"`) }).StatusCode)
	}
	require.Len(t, tags, 3)
}

// A page that has not changed is sent again on the next day: it shows the times of today without their date.
func TestETagOfTheDay(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	now := time.Date(2026, 11, 25, 23, 59, 59, 0, time.UTC)
	console.SetNow(s.handler, func() time.Time { return now })
	tag := ""
	read := func() int {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/jobs", nil)
		r.Header.Set("If-None-Match", tag)
		w := recorded(s.handler, r)
		tag = w.Header().Get("ETag")
		return w.Code
	}
	require.Equal(t, http.StatusOK, read())
	require.Equal(t, http.StatusNotModified, read())
	now = now.Add(time.Minute)
	require.Equal(t, http.StatusOK, read())
}

// A session that is closed is an error that says so, in place of a page from before.
func TestClosedSession(t *testing.T) {
	t.Parallel()
	f := testkit.Shared(t)
	sess, _ := f.Session(nil)
	h, err := console.Handler(sess, nil)
	require.NoError(t, err)
	paths := []string{"/", "/doctor", "/queue?name=semaphore/charge", "/store?name=orders"}
	read := func(path string) (int, string) {
		r, err := http.NewRequest(http.MethodGet, "http://localhost"+path, nil)
		require.NoError(t, err)
		w := recorded(h, r)
		return w.Code, w.Body.String()
	}
	for _, path := range paths {
		code, _ := read(path)
		require.Equal(t, http.StatusOK, code, path)
	}
	require.NoError(t, sess.Close(testkit.Context(t)))
	for _, path := range paths {
		code, body := read(path)
		require.Equal(t, http.StatusServiceUnavailable, code, path)
		require.Contains(t, body, "the program has closed its session", path)
	}
}

// So many other namespaces are named, and that there are more.
func TestOtherNamespaces(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	client := s.NewClient(t, nil)
	for i := range 201 {
		space, err := keyspace.New(s.Root, fmt.Sprintf("other-%03d", i))
		require.NoError(t, err)
		_, err = client.Put(testkit.Context(t), space.Queue(keyspace.Semaphore, "charge").Limit, record.Limit{Limit: 1}.Encode())
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return strings.Contains(s.page("/"), "other-199</bdi>, and more.") }, 2*testkit.Soon, 10*time.Millisecond, "a read that has failed on a busy machine is repeated after a minute")
}

func TestOptions(t *testing.T) {
	t.Parallel()
	_, err := console.Handler(nil, nil)
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	sess, _ := testkit.Shared(t).Session(nil)
	for _, o := range []console.Options{{Hosts: []string{""}}, {Hosts: []string{"a/b"}}, {Hosts: []string{"a:80"}}, {Hosts: []string{"*.example.com"}}, {Hosts: []string{"a,b"}}, {Hosts: []string{"a."}}, {Hosts: []string{"[nonsense"}}, {Hosts: []string{"[a:b]"}}, {MaxViewers: -1}} {
		_, err = console.Handler(sess, &o)
		require.ErrorIs(t, err, console.ErrInvalid)
		require.ErrorIs(t, err, concurrency.ErrInvalid) // A428: it was another value, and the text did not name the package or Options
		require.Regexp(t, `^console: new handler: Options\.`, err.Error())
	}
}

// The actions of an operator, each with what it has done.
func TestActions(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all, Actor: func(*http.Request) string { return "ada" }})
	sm := s.semaphore("web-7", "charge", 2)
	a, b := s.acquire(sm), s.acquire(sm)
	act := func(do, name, target string, more ...string) answer {
		form := url.Values{"do": {do}, "name": {name}, "target": {target}, "confirm": {name}, "reason": {"it must be"}}
		for i := 0; i < len(more); i += 2 {
			form.Set(more[i], more[i+1])
		}
		return s.post(form)
	}
	followed := func(r answer) string {
		t.Helper()
		require.Equal(t, http.StatusSeeOther, r.StatusCode, r.body)
		return s.page("/" + r.Header.Get("Location"))
	}
	require.Contains(t, followed(act("set-limit", "semaphore/charge", "", "value", "7")), "Limit 7")
	require.Contains(t, followed(act("request-stop", "semaphore/charge", fmt.Sprint(a.Token()), "reason", "deploy")), "was asked")
	testkit.Closed(t, a.StopRequested().Done(), "it is asked")
	require.NoError(t, a.Err())
	require.Contains(t, followed(act("evict", "semaphore/charge", fmt.Sprint(b.Token()), "reason", "stuck")), "The request is evicted.")
	testkit.Closed(t, b.Context().Done(), "it is evicted")
	require.ErrorContains(t, b.Err(), "ada: stuck")
	require.Equal(t, http.StatusConflict, act("evict", "semaphore/charge", fmt.Sprint(b.Token())).StatusCode)
	require.Equal(t, http.StatusBadRequest, act("evict", "semaphore/charge", "x").StatusCode)
	require.Equal(t, http.StatusBadRequest, act("set-limit", "mutex/x", "", "value", "7").StatusCode)
	require.Equal(t, http.StatusBadRequest, act("set-limit", "semaphore/charge", "", "value", "-1").StatusCode)
	require.Equal(t, http.StatusNotFound, act("set-limit", "semaphore/chrage", "", "value", "7").StatusCode)

	lim, err := concurrency.NewKeyedLimiter(s.session("web-7"), "api", 5, nil)
	require.NoError(t, err)
	_, err = lim.Key("x").Acquire(testkit.Context(t))
	require.NoError(t, err)
	followed(act("set-limit", "limiter/api", "", "value", "6"))
	require.Contains(t, s.page("/queue?name=limiter/api/x"), "Limit 6")
	followed(act("set-limit", "limiter/api/x", "", "value", "8"))
	require.Contains(t, s.page("/queue?name=limiter/api/x"), "Limit 8")

	s.job("invoices", nil)
	require.Contains(t, followed(act("pause", "invoices", "", "reason", "month's end")), "month&#39;s end")
	require.NotContains(t, followed(act("resume", "invoices", "")), "Paused by")
	require.Equal(t, http.StatusConflict, act("unlock", "invoices", "", "reason", "x").StatusCode, "it neither runs nor cools down")

	ref := s.lose("orders", "K-1")
	require.Contains(t, followed(act("resolve", "orders", string(ref), "value", "failed", "reason", "no charge was made")), "No record is in this state")
	require.Contains(t, s.page("/store?name=orders&state=3"), "no charge was made")
	followed(act("delete", "orders", string(ref)))
	require.NotContains(t, s.page("/store?name=orders&state=3"), string(ref))
	require.Equal(t, http.StatusNotFound, act("delete", "orders", string(ref)).StatusCode)
}

// The page of a key says for which of its two limits a request waits, and names no holder of the key to one that
// waits for the total.
func TestWaitersOfAKey(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	sess := s.session("web-7")
	lim, err := concurrency.NewKeyedLimiter(sess, "api", 3, &concurrency.KeyedLimiterOptions{Total: 2})
	require.NoError(t, err)
	for _, key := range []string{"hog", "acme"} {
		s.acquire(lim.Key(key))
	}
	for n := range 3 { // two wait for the total, and one for the key
		s.wait(lim.Key("acme"), n+1)
	}
	body := s.page("/queue?name=limiter/api/acme")
	require.Contains(t, body, "Limit 3, 3 used, of which 2 by requests that wait for the total; 3 waiting")
	require.Equal(t, 2, strings.Count(body, `admitted at its key, waits for the <a href="queue?name=limiter%2fapi">total</a>`))
	require.Equal(t, 1, strings.Count(body, ">1st, behind <bdi>web-7</bdi></td>"))
	for n := range 3 {
		s.wait(lim.Key("globex"), n+1)
	}
	s.wait(lim.Key("globex"), 4)
	body = s.page("/queue?name=limiter/api/globex")
	require.Contains(t, body, ">1st, behind requests that wait for the total</td>")
	require.NotContains(t, body, "The oldest holder is")
}

// A paused queue names no holder: its requests wait for the limit.
func TestWaitersOfAPausedQueue(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	sm := s.semaphore("web-7", "charge", 1)
	s.acquire(sm)
	require.NoError(t, sm.SetLimit(testkit.Context(t), 0))
	s.wait(sm, 1)
	body := s.page("/queue?name=semaphore/charge")
	require.Contains(t, body, ">1st, paused by a limit of 0</td>")
	require.NotContains(t, body, "behind")
	require.NotContains(t, body, "The oldest holder is")
	require.Contains(t, s.page("/"), "1 paused")
	require.NotContains(t, s.page("/"), "at its limit", "it is paused")
}

// Holders have pages, as waiters do.
func TestPagesOfHolders(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	sm := s.semaphore("web-7", "charge", 200)
	var held []*concurrency.Permit
	for range 102 {
		held = append(held, s.acquire(sm))
	}
	first, second := s.page("/queue?name=semaphore/charge"), s.page("/queue?name=semaphore/charge&holders=1")
	require.Contains(t, first, "1 to 100 of 102")
	require.Contains(t, first, "holders=1")
	require.Contains(t, second, "101 to 102 of 102")
	require.NotContains(t, first, fmt.Sprintf("target=%d", held[101].Token()))
	require.Contains(t, second, fmt.Sprintf("target=%d", held[101].Token()))
}
