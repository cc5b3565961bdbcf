package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/serve"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// The console's first address has a token, without which nothing is shown, and a cookie carries it on.
func TestConsole(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Crowd("charge")
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	line, done := f.Service(ctx, "console", "-N", "test")
	at, err := url.Parse(line)
	require.NoError(t, err)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	get := func(c *http.Client, u string) (int, string, string) {
		resp, err := c.Get(u)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body), resp.Request.URL.String()
	}
	root := "http://" + at.Host + "/"
	for _, u := range []string{root, root + "?token=", root + "?token=x", root + "static/console.js"} {
		code, body, _ := get(http.DefaultClient, u)
		require.Equal(t, http.StatusForbidden, code, u)
		require.NotContains(t, body, "charge")
	}
	first := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for u, code := range map[string]int{root: http.StatusForbidden, line: http.StatusSeeOther} {
		for host, code := range map[string]int{"": code, "evil.example": http.StatusMisdirectedRequest} {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
			require.NoError(t, err)
			r.Host = host
			resp, err := first.Do(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, code, resp.StatusCode, "%s at %q", u, host)
			require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
			require.Equal(t, "same-origin", resp.Header.Get("Referrer-Policy"))
			require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'")
			require.Equal(t, code == http.StatusSeeOther, len(resp.Cookies()) == 1, "the token counts at the console's own hosts")
		}
	}
	code, body, to := get(browser, line)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "semaphore/charge")
	require.Regexp(t, "^"+root+"[a-z0-9]{10}/$", to, "the token is not in the address any more")
	code, body, _ = get(browser, to+"queue?name=semaphore/charge")
	require.Equal(t, http.StatusOK, code)
	require.NotContains(t, body, "confirm?do=", "it is read-only")
	// Another program on this machine, at a port of its own, to which a link has led.
	got := make(chan []*http.Cookie, 1)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Cookies() }))
	defer other.Close()
	get(browser, other.URL+"/queue?name=semaphore/charge")
	require.Empty(t, <-got, "it gets no token")

	f.Shows(at.Query().Get("token"), "S3FFR5VGXXMTKEDQ2XQV7OWBGO")
	f.Shows(at.Host, "127.0.0.1:41833")
	fmt.Fprintf(&f.Script, "$ etcdkit console -N test\n%s\n", line)
	line, asJSON := f.Service(ctx, "console", "-N", "test", "-o", "json")
	var printed struct{ URL string }
	require.NoError(t, json.Unmarshal([]byte(line), &printed))
	at, err = url.Parse(printed.URL)
	require.NoError(t, err)
	f.Shows(at.Query().Get("token"), "VYQ2MKZ4ODAFH6WJ3NRT7CBUXE")
	f.Shows(at.Host, "127.0.0.1:41834")
	fmt.Fprintf(&f.Script, "$ etcdkit console -N test -o json\n%s\n", line)
	f.Shell("console -N test --listen 0.0.0.0:8080")
	f.Shell("console -N test --listen 8080")
	f.Shell("console")
	cancel(exit.Interrupted{Signal: syscall.SIGINT})
	for _, ended := range []<-chan clitest.Result{done, asJSON} {
		r := testkit.Got(t, ended, "it ends")
		require.Zero(t, r.Code, r.Err)
	}
	f.Golden("console")
}

// With --write an action works, for a browser that has the token.
func TestConsoleWrites(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Crowd("charge")
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	defer cancel(nil)
	line, done := f.Service(ctx, "console", "-N", "test", "--write")
	at, err := url.Parse(line)
	require.NoError(t, err)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	first := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := first.Get(line)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	cookie := resp.Cookies()[0]
	require.Equal(t, http.SameSiteLaxMode, cookie.SameSite, "a link in a chat leads to a page, and not to a refusal")
	require.True(t, cookie.HttpOnly)
	require.Equal(t, resp.Header.Get("Location"), cookie.Path)
	require.NotEqual(t, "/", cookie.Path, "other programs on this machine do not get it")
	resp, err = browser.Get(line)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	action := resp.Request.URL.String() + "action"
	form := url.Values{"do": {"set-limit"}, "name": {"semaphore/charge"}, "confirm": {"semaphore/charge"}, "value": {"9"}, "reason": {"load"}}
	for _, c := range []*http.Client{http.DefaultClient, browser} {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, action, strings.NewReader(form.Encode()))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://"+at.Host)
		resp, err := c.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, c == browser, resp.StatusCode == http.StatusOK, resp.Status)
	}
	require.Contains(t, f.Run("limit", "-N", "test", "charge").Out, "9")
	cancel(exit.Interrupted{Signal: syscall.SIGINT})
	logged := testkit.Got(t, done, "it ends").Err
	require.Contains(t, logged, "an action of the console")
	require.Contains(t, logged, `"action": "set-limit", "name": "semaphore/charge"`)
}

// The printed address has a host that the console does not refuse.
func TestConsoleIsReachedAt(t *testing.T) {
	t.Parallel()
	for listens, want := range map[string]string{
		"127.0.0.1:8080": "127.0.0.1:8080", "[::1]:8080": "[::1]:8080",
		"0.0.0.0:8080": "ops.example:8080", "[::]:8080": "ops.example:8080", "10.0.0.1:8080": "ops.example:8080",
	} {
		require.Equal(t, want, serve.ReachedAt(listens, []string{"ops.example", "other"}))
	}
	require.Equal(t, "[::1]:80", serve.ReachedAt("0.0.0.0:80", []string{"[::1]"}))
	require.Equal(t, "127.0.0.1:8080", serve.ReachedAt("127.0.0.1:8080", nil))
	f := clitest.New(t)
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	defer cancel(nil)
	line, _ := f.Service(ctx, "console", "-N", "test", "--listen", "0.0.0.0:0", "--host", "localhost")
	resp, err := http.Get(line)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.NotEqual(t, http.StatusMisdirectedRequest, resp.StatusCode)
}

// The consoles of the other namespaces below the prefix are behind the links of the overview, and lead back. They have the
// same token, and are as read-only as the first one.
func TestConsoleNamespaces(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Crowd("charge")
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	defer cancel(nil)
	for _, name := range []string{"..", "b & c", "other"} {
		sess, err := concurrency.NewSession(ctx, f.Etcd.NewClient(t, nil).Client, name, &concurrency.SessionOptions{Prefix: f.Prefix, Owner: "web-1"})
		require.NoError(t, err)
		t.Cleanup(func() {
			ended, end := context.WithCancel(context.Background())
			end()
			_ = sess.Close(ended) // with its permit
		})
		sm, err := concurrency.NewSemaphore(sess, "of "+name, 2, nil)
		require.NoError(t, err)
		_, err = sm.Acquire(ctx)
		require.NoError(t, err)
	}
	line, done := f.Service(ctx, "console", "-N", "test")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	get := func(u string) (string, *url.URL) {
		resp, err := browser.Get(u)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", u, body)
		return string(body), resp.Request.URL
	}
	follow := func(body string, at *url.URL, name string) (string, *url.URL) {
		link := regexp.MustCompile(`<a href="([^"]*)"><bdi>` + regexp.QuoteMeta(html.EscapeString(name)) + `</bdi></a>`).FindStringSubmatch(body)
		require.NotNil(t, link, name)
		to, err := at.Parse(html.UnescapeString(link[1]))
		require.NoError(t, err)
		return get(to.String())
	}
	first, at := get(line)
	require.Contains(t, first, "semaphore/charge")
	for _, name := range []string{"..", "b & c", "other"} {
		body, there := follow(first, at, name)
		require.Contains(t, body, "semaphore/of "+html.EscapeString(name))
		require.NotContains(t, body, "semaphore/charge")
		back, root := follow(body, there, "test")
		require.Contains(t, back, "semaphore/charge")
		require.Equal(t, at.String(), root.String())
		queue, _ := get(there.String() + "queue?name=" + url.QueryEscape("semaphore/of "+name))
		require.NotContains(t, queue, "confirm?do=", "it is read-only")
		resp, err := http.Get(there.String())
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusForbidden, resp.StatusCode, "without the token")
	}
	body, there := follow(first, at, "other")
	again, _ := follow(body, there, "b & c")
	require.Contains(t, again, "semaphore/of b &amp; c", "from one to the next")
	cancel(exit.Interrupted{Signal: syscall.SIGINT})
	testkit.Got(t, done, "it ends")
}

// Looking leaves nothing in etcd, with --write neither (A319 in internal/proof/tested-failures.md): a session, and with it a
// lease, was opened in each namespace that was typed.
func TestConsoleLeavesNothing(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	defer cancel(nil)
	line, done := f.Service(ctx, "console", "-N", "tset", "--write")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	resp, err := browser.Get(line)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	at := resp.Request.URL.String()
	for path, code := range map[string]int{"": http.StatusOK, "sessions": http.StatusOK, "doctor": http.StatusOK, "in/@orders/": http.StatusNotFound, "in/@orders/sessions": http.StatusNotFound} {
		resp, err := browser.Get(at + path)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, code, resp.StatusCode, path)
		f.NothingLeft()
	}
	// A422: the names of a scan took all places, until the command was started again.
	for n := range 40 {
		resp, err := browser.Get(fmt.Sprintf("%sin/@scan-%d/", at, n))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
	}
	space, err := keyspace.New(f.Prefix, "orders")
	require.NoError(t, err)
	_, err = f.Etcd.Client().Put(testkit.Context(t), space.Queue(keyspace.Semaphore, "charge").Limit, record.Limit{Limit: 1}.Encode())
	require.NoError(t, err)
	resp, err = browser.Get(at + "in/@orders/")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode, "it is there by now")
	cancel(exit.Interrupted{Signal: syscall.SIGINT})
	testkit.Got(t, done, "it ends")
}
