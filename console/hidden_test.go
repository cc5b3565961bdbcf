package console_test

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A viewer of one process, and not of its queues, gets no names of those and no falsehoods, and after an action a page that
// it may see.
func TestHiddenIsSaid(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: func(_ *http.Request, a console.Action) error {
		if a.Name == "" || strings.Contains(a.Name, "secret") {
			return errors.New("not for you")
		}
		return nil
	}})
	sess := s.session("web-7")
	sm, err := concurrency.NewSemaphore(sess, "secret", 1, nil)
	require.NoError(t, err)
	s.acquire(sm)
	st, err := idempotency.NewStore(sess, "secrets", nil)
	require.NoError(t, err)
	_, _, err = st.Begin(testkit.Context(t), idempotency.Key{Scope: "acme", Op: "POST /payments", ID: "K-1"}, nil)
	require.NoError(t, err)
	name := fmt.Sprintf("%016x", sess.Lease())
	require.Eventually(t, func() bool {
		return strings.Contains(s.page("/process?name="+name), "It holds no permit that you may see.")
	}, testkit.Soon, testkit.Soon/1000)
	require.Contains(t, s.page("/process?name="+name), "It waits for nothing that you may see.")
	page := s.page("/confirm?do=end-session&name=" + name)
	require.Contains(t, page, "0, and 1 that you may not see")
	require.Contains(t, page, "<dt>Jobs and attempts that you may not see</dt><dd><bdi>1</bdi></dd>")
	require.NotContains(t, page, "secret")
	require.Contains(t, page, `href="process?name=`+name)
	require.Contains(t, s.followed(s.post(s.form("end-session", name, "", "reason", "it hangs"))), "The session has ended.")
}

// The column beside a page has the names that the viewer may read, and that of the page, on whichever page of the list it is.
func TestNamesBesideAPage(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: func(_ *http.Request, a console.Action) error {
		if strings.Contains(a.Name, "secret") {
			return errors.New("not for you")
		}
		return nil
	}})
	sess := s.session("web-7")
	for i := range 45 {
		sm, err := concurrency.NewSemaphore(sess, fmt.Sprintf("name-%02d", i), 1, nil)
		require.NoError(t, err)
		s.acquire(sm)
	}
	for i := range 3 {
		sm, err := concurrency.NewSemaphore(sess, fmt.Sprintf("a-secret-%d", i), 1, nil)
		require.NoError(t, err)
		s.acquire(sm)
	}
	for _, name := range []string{"semaphore/name-00", "semaphore/name-44"} {
		require.Eventually(t, func() bool { return strings.Contains(s.page("/search?q="+name), "queue?name=") }, testkit.Soon, testkit.Soon/1000)
		body := s.page("/queue?name=" + name)
		side := body[strings.Index(body, `<aside id="side">`):strings.Index(body, "</aside>")]
		require.NotContains(t, side, "secret")
		require.Equal(t, 40, strings.Count(side, "<bdi>"))
		require.Contains(t, side, `aria-current="page" class="dot busy"><bdi>`+name+"</bdi>")
		require.Contains(t, side, ">All</a>")
	}
}

// The count of each filter is that of the rows which its link shows.
func TestFiltersCountWhatTheyShow(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	sess := s.session("web-7")
	for i := range 3 {
		sm, err := concurrency.NewSemaphore(sess, fmt.Sprint("s", i), 1+i, nil)
		require.NoError(t, err)
		s.acquire(sm)
		m, err := concurrency.NewMutex(sess, fmt.Sprint("m", i))
		require.NoError(t, err)
		_, err = m.Lock(testkit.Context(t))
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return strings.Contains(s.page("/queues"), "1 to 6 of 6") }, testkit.Soon, testkit.Soon/1000)
	links := regexp.MustCompile(`<li><a href="(\?[^"]*)"[^>]*>[^<]* <span class="n">(\d+)</span>`)
	for _, from := range []string{"", "?show=full", "?kind=semaphore", "?kind=semaphore&show=full"} {
		found := links.FindAllStringSubmatch(s.page("/queues"+from), -1)
		require.NotEmpty(t, found)
		for _, m := range found {
			n, _ := strconv.Atoi(m[2])
			body := s.page("/queues" + html.UnescapeString(m[1]))
			require.Equal(t, n, strings.Count(body, `<th scope="row">`), "%s: %s", from, m[1])
		}
	}
}

// An action on many records is offered where it has targets.
func TestManyIsOfferedWhereItApplies(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	s.lose("orders", "K-1")
	s.lose("orders", "K-2")
	s.attempt("orders", "K-2")
	st, err := idempotency.NewStore(s.session("web-9"), "orders", nil)
	require.NoError(t, err)
	_, _, err = st.Begin(testkit.Context(t), idempotency.Key{Scope: "acme", Op: "POST /payments", ID: "K-3"}, nil)
	require.NoError(t, err)
	for query, want := range map[string][2]bool{"": {true, true}, "&only=refused": {true, true}, "&scope=acme": {true, true}, "&scope=globex": {}, fmt.Sprint("&state=", int(idempotency.InProgress)): {}} {
		body := s.page("/store?name=orders" + query)
		require.Equal(t, want, [2]bool{strings.Contains(body, "Resolve many"), strings.Contains(body, "Delete many")}, query)
	}
	for _, m := range regexp.MustCompile(`href="(store\?name=orders&amp;state=\d)"[^>]*>([a-z]+) <span class="n">1`).FindAllStringSubmatch(s.page("/store?name=orders"), -1) {
		u, err := url.Parse(html.UnescapeString(m[1]))
		require.NoError(t, err)
		require.Equal(t, m[2] == "unknown", strings.Contains(s.page("/"+u.String()), "Resolve many"), m[2])
	}
}
