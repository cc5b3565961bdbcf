package console_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

func recorded(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// evicting is a form that would end a request.
func evicting(p *concurrency.Permit) url.Values {
	return url.Values{"do": {"evict"}, "name": {"semaphore/charge"}, "confirm": {"semaphore/charge"}, "target": {fmt.Sprint(p.Token())}, "reason": {"stuck"}}
}

// A console without Authorize shows no action and makes none.
func TestReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	p := s.acquire(s.semaphore("web-7", "charge", 1))
	s.job("invoices", nil)
	for _, path := range []string{"/queue?name=semaphore/charge", "/job?name=invoices", "/store?name=orders"} {
		require.NotContains(t, s.page(path), "confirm?do=", path)
	}
	require.Equal(t, http.StatusForbidden, s.get("/confirm?do=evict&name=semaphore/charge&target=1").StatusCode)
	a := s.post(evicting(p))
	require.Equal(t, http.StatusForbidden, a.StatusCode)
	require.Contains(t, a.body, "read-only")
	require.NoError(t, p.Err())
}

// Authorize is asked for each page and each action, with its name and target.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: func(r *http.Request, a console.Action) error {
		switch {
		case r.Header.Get("X-User") == "":
			return errors.New("who are you?")
		case a.Verb == console.Read && a.Name != "semaphore/secret", a.Verb == console.SetLimit && a.Name == "semaphore/charge":
			return nil
		}
		return fmt.Errorf("%s of %s %s is not allowed", a.Verb, a.Name, a.Target)
	}})
	p := s.acquire(s.semaphore("web-7", "charge", 1))
	user := func(r *http.Request) { r.Header.Set("X-User", "ada") }
	for _, path := range []string{"/", "/queue?name=semaphore/charge", "/elections", "/jobs", "/job?name=x", "/stores", "/store?name=x", "/sessions", "/doctor", "/queues", "/search?q=x", "/process?name=0000000000000007", "/confirm?do=set-limit&name=semaphore/charge"} {
		a := s.get(path)
		require.Equal(t, http.StatusForbidden, a.StatusCode, path)
		require.Contains(t, a.body, "who are you?")
	}
	body := s.get("/queue?name=semaphore/charge", user).body
	require.Contains(t, body, "do=set-limit")
	require.NotContains(t, body, "do=evict")
	require.Equal(t, http.StatusForbidden, s.get("/queue?name=semaphore/secret", user).StatusCode)
	a := s.post(evicting(p), user)
	require.Equal(t, http.StatusForbidden, a.StatusCode)
	require.Contains(t, a.body, fmt.Sprintf("evict of semaphore/charge %d is not allowed", p.Token()))
	require.NoError(t, p.Err())
	require.Equal(t, http.StatusSeeOther, s.post(url.Values{"do": {"set-limit"}, "name": {"semaphore/charge"}, "confirm": {"semaphore/charge"}, "value": {"2"}, "reason": {"load"}}, user).StatusCode)
}

// A form that is filled in wrongly is shown again to a viewer that may read it.
func TestMistakesShowNothingUnread(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: func(_ *http.Request, a console.Action) error {
		if a.Verb == console.Read && a.Name == "semaphore/charge" {
			return errors.New("not for you")
		}
		return nil
	}})
	p := s.acquire(s.semaphore("web-7", "charge", 1), concurrency.Note("secret note"))
	form := evicting(p)
	form.Set("confirm", "x")
	a := s.post(form)
	require.Equal(t, http.StatusForbidden, a.StatusCode)
	require.NotContains(t, a.body, "secret note")
	require.NoError(t, p.Err())
}

// A request that another site has caused, or that has no sign of where it comes from, changes nothing;
// nor does one for a host that is not the console's, which is how DNS rebinding looks.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	p := s.acquire(s.semaphore("web-7", "charge", 1))
	for name, edit := range map[string]func(*http.Request){
		"cross-site":          func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"same site":           func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"another origin":      func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "http://evil.example") },
		"no origin":           func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") },
		"rebound DNS":         func(r *http.Request) { r.Host = "evil.example"; r.Header.Set("Origin", "http://evil.example") },
		"rebound DNS, a port": func(r *http.Request) { r.Host = "evil.example:80" },
		"a host's prefix":     func(r *http.Request) { r.Host = "localhost.evil.example" },
		"a proxy's own host":  func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "http://ops.example") },
	} {
		a := s.post(evicting(p), edit)
		require.Contains(t, []int{http.StatusForbidden, http.StatusMisdirectedRequest}, a.StatusCode, name)
		if a.StatusCode == http.StatusForbidden {
			require.Contains(t, a.body, "an action has to come from a page of this console", name)
			require.Contains(t, a.body, `<a href="./">Overview</a>`, "a way back")
		}
		require.NoError(t, p.Err(), name)
	}
	require.Equal(t, http.StatusMisdirectedRequest, s.get("/", func(r *http.Request) { r.Host = "evil.example" }).StatusCode)
	require.Equal(t, http.StatusOK, s.get("/", func(r *http.Request) { r.Host = "LOCALHOST:1234" }).StatusCode)
	require.Equal(t, http.StatusOK, s.get("/", func(r *http.Request) { r.Host = "[::1]:1234" }).StatusCode)
	require.Equal(t, http.StatusMethodNotAllowed, s.get("/action?"+evicting(p).Encode()).StatusCode, "no action by GET")
	form := evicting(p)
	form.Set("confirm", "charge")
	require.Equal(t, http.StatusBadRequest, s.post(form).StatusCode, "the name was not typed")
	require.NoError(t, p.Err())
}

// Every answer has the headers that keep a page from running or loading anything else.
func TestHeaders(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	for _, path := range []string{"/", "/doctor", "/static/console.js", "/static/console.css", "/nothing", "/queue?name=x"} {
		h := s.get(path).Header
		require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'", path)
		require.NotContains(t, h.Get("Content-Security-Policy"), "unsafe", path)
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), path)
		require.Equal(t, "same-origin", h.Get("Referrer-Policy"), path)
		require.Empty(t, h.Get("Cross-Origin-Opener-Policy"), path)
		if !strings.HasPrefix(path, "/static") {
			require.Equal(t, "no-store", h.Get("Cache-Control"), path)
		}
	}
	// Browsers apply Cross-Origin-Opener-Policy where they send Sec-Fetch-Dest, and report an error elsewhere.
	trusted := s.get("/", func(r *http.Request) { r.Header.Set("Sec-Fetch-Dest", "document") })
	require.Equal(t, "same-origin", trusted.Header.Get("Cross-Origin-Opener-Policy"))
	body := s.page("/")
	require.NotContains(t, body, "<style")
	require.NotContains(t, body, " style=")
	require.NotContains(t, body, " on")
	for _, path := range []string{"/static/../handler.go", "/static/%2e%2e/templates/layout.html", "/static/", "/static/none", "/templates/layout.html"} {
		require.NotEqual(t, http.StatusOK, s.get(path).StatusCode, path)
	}
	require.Equal(t, http.StatusNotFound, s.get("/static/index.html").StatusCode)
}

// Texts of other processes are text on every page that shows them.
func TestTextsFromEtcdAreEscaped(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	const nasty = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>` + "\u202e{{.}}"
	name := strings.ReplaceAll(nasty, "/", "-")
	owner := strings.ReplaceAll(name, "\u202e", "") // a session takes no such owner
	sm := s.semaphore(owner, name, 1)
	s.acquire(sm, concurrency.Note(nasty), concurrency.ID(nasty))
	s.wait(sm, 1, concurrency.Note(nasty))
	l := s.job(name, errors.New(nasty))
	require.NoError(t, l.Pause(testkit.Context(t), name, nasty))
	s.lose(name, "K-1")
	for _, path := range []string{
		"/", "/queues", "/search?q=" + url.QueryEscape(nasty), "/search?q=script", "/search?q=web-", "/queue?name=" + url.QueryEscape("semaphore/"+name), "/jobs", "/job?name=" + url.QueryEscape(name), "/stores", "/store?name=" + url.QueryEscape(name), "/sessions",
		"/confirm?do=evict&name=" + url.QueryEscape("semaphore/"+name) + "&target=" + url.QueryEscape(nasty), "/queue?name=" + url.QueryEscape(nasty), "/job?name=" + url.QueryEscape(nasty), "/?done=" + url.QueryEscape(nasty),
	} {
		body := s.get(path).body
		require.NotContains(t, body, "<script>alert", path)
		require.NotContains(t, body, "<img src=x", path)
		if !strings.HasPrefix(path, "/confirm") && !strings.HasPrefix(path, "/search") { // whose form has the name itself
			require.NotContains(t, body, "\u202e", path)
		}
	}
}

// Names that nothing can have are refused before anything is kept of them; the longest one that something has is not.
func TestHugeNames(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	name, key := strings.Repeat("n", 255), strings.Repeat("k", 255)
	lim, err := concurrency.NewKeyedLimiter(s.session("web-7"), name, 5, nil)
	require.NoError(t, err)
	s.acquire(lim.Key(key))
	require.Contains(t, s.page("/queue?name=limiter/"+name+"/"+key), "Limit 5, 1 used")
	s.page("/confirm?do=set-limit&name=limiter/" + name + "/" + key)
	before := console.Remembered(s.handler)
	for i := range 10 {
		huge := fmt.Sprint(strings.Repeat("x", 600), i)
		for _, page := range []string{"queue?name=limiter/api/", "queue?name=mutex/", "job?name=", "store?name=", "jobs?name=", "confirm?do=pause&name=", "confirm?do=delete&target=x&name="} {
			require.Equal(t, http.StatusBadRequest, s.get("/"+page+huge).StatusCode, page)
		}
		require.Equal(t, http.StatusBadRequest, s.get("/search?q="+huge).StatusCode)
		require.Equal(t, http.StatusBadRequest, s.submit("pause", huge, "", "reason", "x").StatusCode)
		require.Equal(t, http.StatusBadRequest, s.submit("evict", "mutex/"+huge, "7").StatusCode)
	}
	require.Equal(t, before, console.Remembered(s.handler))
}

// Values of any size are refused or shown, and harm nothing.
func TestHugeValues(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	big := strings.Repeat("x", 1<<20)
	a := s.post(url.Values{"do": {"evict"}, "name": {"semaphore/charge"}, "confirm": {"semaphore/charge"}, "target": {"1"}, "reason": {big}})
	require.Equal(t, http.StatusRequestEntityTooLarge, a.StatusCode)
	for _, path := range []string{"/?page=99999999999999999999", "/?page=-1", "/?page=1000000", "/store?name=x&state=99"} {
		require.Equal(t, http.StatusOK, s.get(path).StatusCode, path)
	}
	require.Equal(t, http.StatusBadRequest, s.get("/queue?name=semaphore/"+strings.Repeat("x", 5000)).StatusCode)
}

// More viewers than are allowed at the same time are asked to come back.
func TestMaxViewers(t *testing.T) {
	t.Parallel()
	hang, entered := make(chan struct{}), make(chan struct{}, 1)
	core, logs := observer.New(zap.InfoLevel)
	s := open(t, "", &console.Options{MaxViewers: 1, Logger: zap.New(core), Authorize: func(r *http.Request, _ console.Action) error {
		if r.Header.Get("X-Hang") != "" {
			entered <- struct{}{}
			<-hang
		}
		return nil
	}})
	release := sync.OnceFunc(func() { close(hang) })
	t.Cleanup(release) // also after a failure: the server waits for its requests
	first := make(chan int, 1)
	go func() {
		r, _ := http.NewRequest(http.MethodGet, s.url+"/sessions", nil)
		r.Header.Set("X-Hang", "1")
		resp, err := s.http.Do(r)
		if err == nil {
			_ = resp.Body.Close()
			first <- resp.StatusCode
		}
	}()
	testkit.Got(t, entered, "the first viewer")
	a := s.get("/")
	require.Equal(t, http.StatusServiceUnavailable, a.StatusCode)
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	require.Equal(t, http.StatusServiceUnavailable, s.post(url.Values{"do": {"pause"}, "name": {"none"}}).StatusCode)
	require.Len(t, logs.FilterMessage("an action of the console was refused").All(), 1)
	release()
	require.Equal(t, http.StatusOK, testkit.Got(t, first, "the first answer"))
}

// sending is a body that is sent as slowly as its reader waits.
type sending struct {
	begun    chan struct{}
	deadline chan time.Time // of the reader
}

func (b *sending) Read([]byte) (int, error) {
	close(b.begun)
	<-b.deadline
	return 0, os.ErrDeadlineExceeded
}

// Close implements io.Closer.
func (b *sending) Close() error { return nil }

// connection is a writer that has a deadline.
type connection struct {
	*httptest.ResponseRecorder
	until []time.Time
}

// SetReadDeadline is what http.ResponseController calls.
func (c *connection) SetReadDeadline(t time.Time) error {
	c.until = append(c.until, t)
	return nil
}

// A slow sender of a form keeps no place of a viewer, and is not waited for without an end.
func TestSlowForms(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{MaxViewers: 1, Authorize: all})
	slow := &sending{begun: make(chan struct{}), deadline: make(chan time.Time)}
	r := httptest.NewRequest(http.MethodPost, "http://localhost/action", slow)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := &connection{ResponseRecorder: httptest.NewRecorder()}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		s.handler.ServeHTTP(w, r)
	}()
	testkit.Closed(t, slow.begun, "the form is read")
	require.Equal(t, http.StatusOK, s.get("/").StatusCode, "the place is free")
	close(slow.deadline)
	testkit.Closed(t, answered, "the slow one is answered")
	require.Equal(t, http.StatusRequestTimeout, w.Code)
	require.Equal(t, "close", w.Header().Get("Connection"))
	require.Len(t, w.until, 1)
	require.WithinDuration(t, time.Now(), w.until[0], time.Minute)

	form := strings.NewReader(url.Values{"do": {"pause"}, "name": {"none"}, "confirm": {"none"}, "reason": {"x"}}.Encode())
	r = httptest.NewRequest(http.MethodPost, "http://localhost/action", form)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w = &connection{ResponseRecorder: httptest.NewRecorder()}
	s.handler.ServeHTTP(w, r)
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Len(t, w.until, 2)
	require.Zero(t, w.until[1], "the server watches the connection while the action is made, and takes a deadline for its end")

	r = httptest.NewRequest(http.MethodPost, "http://localhost/action", strings.NewReader("do=pause&name=none&confirm=none&reason=x"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	require.Equal(t, "none", r.FormValue("name"), "a program's own handler reads the form")
	w = &connection{ResponseRecorder: httptest.NewRecorder()}
	s.handler.ServeHTTP(w, r)
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Empty(t, w.until, "the server watches the connection by then")
}

// A body that is no form is not waited for: the answer comes at once, and the connection ends.
func TestBodiesThatAreNoForms(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	for name, header := range map[string]string{
		"text": "POST /action HTTP/1.1\r\nContent-Type: text/plain", "another form": "POST /action HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x",
		"no type": "POST /action HTTP/1.1\r\nX-Type: none", "another method": "PUT /action HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			require.NoError(t, conn.SetDeadline(time.Now().Add(testkit.Soon)))
			_, err = fmt.Fprintf(conn, "%s\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 200000\r\n\r\nx", header)
			require.NoError(t, err)
			got, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer func() { _ = got.Body.Close() }()
			require.Equal(t, http.StatusUnsupportedMediaType, got.StatusCode)
			require.True(t, got.Close)
			body, err := io.ReadAll(got.Body)
			require.NoError(t, err)
			require.Contains(t, string(body), "an action is a POST with the Content-Type")
		})
	}
}

// receiving is a writer whose client does not read yet.
type receiving struct {
	*httptest.ResponseRecorder
	begun, proceed chan struct{}
}

func (w *receiving) Write(b []byte) (int, error) {
	close(w.begun)
	<-w.proceed
	return w.ResponseRecorder.Write(b)
}

// A slow receiver of a page keeps no place of a viewer.
func TestSlowReceivers(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{MaxViewers: 1})
	w := &receiving{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/sessions", nil))
	}()
	testkit.Closed(t, w.begun, "the page is sent")
	require.Equal(t, http.StatusOK, s.get("/").StatusCode, "the place is free")
	close(w.proceed)
	testkit.Closed(t, answered, "the slow one has its page")
	require.Contains(t, w.Body.String(), "Processes")
}
