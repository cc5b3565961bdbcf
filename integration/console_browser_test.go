package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// browser finds a Chromium, or skips the test.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium: the console was not opened in a browser (Debian: apt-get install chromium)")
	return ""
}

// tab is a page of a browser that is open at a console.
type tab struct {
	t        *testing.T
	ctx      context.Context
	url      string
	broken   atomic.Bool // the server answers with 502, as a proxy whose backend is away
	etcd     *embedtest.Cluster
	sess     *concurrency.Session
	client   func() *concurrency.Session
	mu       sync.Mutex
	problems []string // what the browser has complained about
}

// newTab starts a browser.
func newTab(t *testing.T) *tab {
	t.Helper()
	b := &tab{t: t}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser(t)), chromedp.NoSandbox, chromedp.UserDataDir(userData(t)), chromedp.WSURLReadTimeout(time.Minute),
		chromedp.Flag("host-resolver-rules", "MAP ops.test 127.0.0.1"))
	allocated, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocated)
	t.Cleanup(end)
	bounded, cancel := context.WithTimeout(ctx, 8*time.Minute)
	t.Cleanup(cancel)
	b.ctx = bounded
	chromedp.ListenTarget(ctx, func(e any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := e.(type) {
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError && !strings.Contains(e.Entry.Text, "502") {
				b.problems = append(b.problems, e.Entry.Text+" "+e.Entry.URL)
			}
		case *runtime.EventExceptionThrown:
			b.problems = append(b.problems, e.ExceptionDetails.Error())
		}
	})
	b.do(log.Enable(), chromedp.EmulateViewport(1100, 800))
	return b
}

// openTab starts a browser at a console below /ops/, which it reaches at 127.0.0.1 and as ops.test.
func openTab(t *testing.T) *tab {
	t.Helper()
	b := newTab(t)
	etcd := embedtest.Start(t, nil)
	b.etcd = etcd
	b.client = func() *concurrency.Session { return b.session(etcd, "web-7") }
	b.sess = b.session(etcd, "console")
	h, err := console.Handler(b.sess, &console.Options{
		Hosts:     []string{"127.0.0.1", "ops.test"},
		Authorize: func(*http.Request, console.Action) error { return nil }, Actor: func(*http.Request) string { return "ada" },
	})
	require.NoError(t, err)
	server := httptest.NewServer(http.StripPrefix("/ops", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.broken.Load() {
			http.Error(w, "the backend is away", http.StatusBadGateway)
			return
		}
		h.ServeHTTP(w, r)
	})))
	t.Cleanup(server.Close)
	b.url = server.URL + "/ops/"
	return b
}

// userData returns a folder for a browser, which is removed when the last of its processes has left it alone.
func userData(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "console-browser-")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return os.RemoveAll(dir) == nil }, time.Minute, 50*time.Millisecond)
	})
	return dir
}

func (b *tab) session(etcd *embedtest.Cluster, owner string) *concurrency.Session {
	b.t.Helper()
	s, err := concurrency.NewSession(b.t.Context(), etcd.NewClient(b.t, nil).Client, "shop", &concurrency.SessionOptions{Owner: owner})
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx)
	})
	return s
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Run(b.ctx, actions...))
}

// open opens a page.
func (b *tab) open(page string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url+page), chromedp.WaitVisible("h1", chromedp.ByQuery))
}

// eval evaluates an expression of the page.
func (b *tab) eval(expression string) (out string) {
	b.t.Helper()
	var v any
	b.do(chromedp.Evaluate(expression, &v))
	text, err := json.Marshal(v)
	require.NoError(b.t, err)
	return string(text)
}

// shows waits until the page has a text. While one page follows another there is nothing to ask.
func (b *tab) shows(text string) {
	b.t.Helper()
	shown, until := "", time.Now().Add(time.Minute)
	for time.Now().Before(until) {
		if err := chromedp.Run(b.ctx, chromedp.Evaluate("document.body.innerText", &shown)); err == nil && strings.Contains(shown, text) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	b.t.Fatalf("the page does not show %q:\n%s", text, shown)
}

// fine fails the test if the browser has complained.
func (b *tab) fine(at string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.problems, at)
}

// shot keeps a picture of the page, if CONSOLE_SHOTS names a folder.
func (b *tab) shot(name string) {
	dir := os.Getenv("CONSOLE_SHOTS")
	if dir == "" {
		return
	}
	var png []byte
	b.do(chromedp.FullScreenshot(&png, 100))
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600))
}

// accessible lists what an automatic check of a page finds: names of controls, structure, and contrast.
const accessible = `(() => {
  const bad = [];
  const doc = document;
  if (!doc.documentElement.lang) bad.push("no language");
  if (doc.querySelectorAll("h1").length != 1) bad.push("not one h1");
  if (!doc.querySelector("main")) bad.push("no main");
  if (!doc.title) bad.push("no title");
  for (const e of doc.querySelectorAll("input:not([type=hidden]), select, textarea")) if (!e.labels.length) bad.push("no label: " + e.name);
  for (const e of doc.querySelectorAll("a, button")) if (!e.innerText.trim()) bad.push("no name: " + e.outerHTML);
  for (const e of doc.querySelectorAll("table")) if (!e.caption) bad.push("no caption");
  for (const e of doc.querySelectorAll("th")) if (!e.scope) bad.push("no scope: " + e.innerText);
  for (const e of doc.querySelectorAll("nav")) if (!e.ariaLabel) bad.push("nav without a name");
  const ids = [...doc.querySelectorAll("[id]")].map(e => e.id);
  if (new Set(ids).size != ids.length) bad.push("an id twice");
  const rgb = c => c.match(/[\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = rgb(c).map(v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (rgb(c).length < 4 || rgb(c)[3] > 0) return c; } return "rgb(255,255,255)"; };
  for (const e of doc.querySelectorAll("body *")) {
    if (![...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()) || !e.checkVisibility()) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) bad.push("contrast " + ((a + 0.05) / (b + 0.05)).toFixed(2) + ": " + e.outerHTML.slice(0, 80));
  }
  return bad;
})()`

// stocked is a namespace with something on each page.
type stocked struct {
	sess          *concurrency.Session
	charge        *concurrency.Semaphore
	first, second *concurrency.Permit
	orders        *idempotency.Store
	key           idempotency.Key
	ref           idempotency.Ref
	pages         map[string]string // a text of each
}

// stock fills the namespace of a tab.
func stock(b *tab) stocked {
	b.t.Helper()
	t, ctx := b.t, b.t.Context()
	s := b.client()
	charge, err := concurrency.NewSemaphore(s, "charge", 2, nil)
	require.NoError(t, err)
	first, err := charge.Acquire(ctx, concurrency.Note("order 12"))
	require.NoError(t, err)
	second, err := charge.Acquire(ctx, concurrency.Note("<b>order 13</b>"))
	require.NoError(t, err)
	waiting, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	go func() { _, _ = charge.Acquire(waiting, concurrency.Note("order 14")) }()
	lim, err := concurrency.NewKeyedLimiter(s, "api", 5, &concurrency.KeyedLimiterOptions{Total: 20})
	require.NoError(t, err)
	_, err = lim.Key("acme").Acquire(ctx)
	require.NoError(t, err)
	el, err := concurrency.NewElection(s, "shard-7")
	require.NoError(t, err)
	_, err = el.Campaign(ctx, concurrency.Note("10.0.0.7:8080"))
	require.NoError(t, err)
	rate, err := concurrency.NewRateLimiter(s, "mails", concurrency.Rate{PerSecond: 20, Burst: 1}, nil)
	require.NoError(t, err)
	require.NoError(t, rate.Wait(ctx))
	jobs, err := schedlock.New(s, nil)
	require.NoError(t, err)
	full := errors.New("the disk is full")
	_, err = jobs.Do(ctx, "cleanup", func(context.Context, *schedlock.Run) error { return full }, schedlock.Every(time.Minute))
	require.ErrorIs(t, err, full)
	reporting := make(chan struct{}, 1)
	report, err := jobs.Job("report", schedlock.Periods(24*time.Hour), func(ctx context.Context, _ *schedlock.Run) error {
		select {
		case reporting <- struct{}{}: // the first run, which makes the job known
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	require.NoError(t, err)
	report.Next(time.Now()) // as a cron library does
	_, err = report.Trigger(ctx)
	require.NoError(t, err)
	orders, err := idempotency.NewStore(s, "orders", &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(t, err)
	key := idempotency.Key{Scope: "acme", Op: "POST /payments", ID: "K-1"}
	ref := orders.Ref(key)
	a, _, err := orders.Begin(ctx, key, nil)
	require.NoError(t, err)
	require.NoError(t, a.Abandon(ctx))

	pages := map[string]string{
		"": "semaphore/charge", "queue?name=semaphore/charge": "1st, behind web-7", "queue?name=limiter/api": "acme", "elections": "10.0.0.7:8080",
		"jobs": "cleanup", "job?name=cleanup": "the disk is full", "stores": "orders", "store?name=orders": "POST /payments", "sessions": "web-7",
		"doctor": "a majority answers reads in", fmt.Sprintf("confirm?do=evict&name=semaphore/charge&target=%d", second.Token()): "<b>order 13</b>",
		"confirm?do=resolve&name=orders&target=" + url.QueryEscape(string(ref)): "choose what the lost attempt has done", "confirm?do=pause&name=cleanup": "Keep the job from starting", "queue?name=semaphore/none": "No request waits",
		"queue?name=rate/mails": "20 per second", "queue?name=election/shard-7": "10.0.0.7:8080", "alert?etcdkit_kind=semaphore&etcdkit_name=charge": "order 12",
		"queues": "semaphore/charge", "search?q=order": "web-7 holds", "changes": "There is no recorded change", "bulk?do=delete&store=orders&only=refused": "1 target", fmt.Sprintf("process?name=%016x", s.Lease()): "order 12",
	}
	return stocked{s, charge, first, second, orders, key, ref, pages}
}

// The console in a browser: each page and each action, below a path, without a violation of its
// Content-Security-Policy; live, after a failure of the server as well; for a keyboard, a phone, light and
// dark; and for reading, without JavaScript.
func TestConsoleInABrowser(t *testing.T) {
	b := openTab(t)
	ctx := t.Context()
	c := stock(b)
	s, charge, first, second, orders, key, ref, pages := c.sess, c.charge, c.first, c.second, c.orders, c.key, c.ref, c.pages
	names := map[string]string{"": "queues", "queue?name=semaphore/charge": "queue", "job?name=cleanup": "job", "store?name=orders": "requests", "confirm?do=pause&name=cleanup": "confirm"}
	for _, scheme := range []string{"light", "dark"} {
		b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
		for page, text := range pages {
			b.open(page)
			b.shows(text)
			require.Equal(t, "[]", b.eval(accessible), "%s, %s", page, scheme)
			b.fine(page)
			if name := names[page]; name != "" && scheme == "light" {
				b.shot(name)
			}
		}
	}
	b.open("queue?name=semaphore/charge")
	b.shot("queue-dark")
	b.do(emulation.SetEmulatedMedia())

	b.do(chromedp.EmulateViewport(360, 740))
	for page := range pages {
		b.open(page)
		require.Equal(t, "true", b.eval("document.documentElement.scrollWidth <= 360"), "%s is wider than a phone", page)
		require.Equal(t, "[]", b.eval(`[...document.querySelectorAll(".mark")].filter(e => e.getBoundingClientRect().right > e.closest("tr, p, figure").getBoundingClientRect().right).map(e => e.innerText)`), "%s cuts off states", page)
	}
	b.do(chromedp.EmulateViewport(900, 740))
	for page := range pages {
		b.open(page)
		require.Equal(t, "[]", b.eval(`[...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)`), "%s has a table that is wider than a tablet", page)
		require.Equal(t, "[]", b.eval(`[...document.querySelectorAll("thead th[data-th]")].filter(h => h.offsetParent && ![...h.closest("table").querySelectorAll("td[data-th=" + h.dataset.th + "]")].some(e => e.innerText)).map(h => h.innerText)`), "%s has a column without content", page)
	}
	b.open("queue?name=semaphore/charge")
	b.shot("queue-phone")
	b.do(chromedp.EmulateViewport(1100, 800))

	b.open("queue?name=semaphore/charge")
	require.Equal(t, "true", b.eval(`(times => times.length > 0 && times.every(e => e.title.endsWith(" here")))([...document.querySelectorAll("main time:not([data-age])")])`), "the local time")
	require.Equal(t, b.eval(`document.querySelectorAll(".copied").length * (navigator.clipboard ? 1 : 0)`), b.eval(`document.querySelectorAll("button.copy").length`), "a button for each")

	// A page is live, also after its server was away.
	b.open("queue?name=semaphore/charge")
	b.do(chromedp.Evaluate("window.same = true", nil))
	third, err := concurrency.NewMutex(s, "unused")
	require.NoError(t, err)
	require.NoError(t, first.Release(ctx))
	b.shows("0 waiting")
	b.broken.Store(true)
	b.shows("not up to date")
	require.NoError(t, charge.SetLimit(ctx, 7))
	b.broken.Store(false)
	b.shows("Limit 7")
	// A text that is selected stays, and the time as of which it is true.
	b.do(chromedp.Evaluate("getSelection().selectAllChildren(document.querySelector('main p'))", nil))
	b.shows("kept as it is while a text is selected")
	kept := b.eval("document.querySelector('#as-of').innerText")
	require.NoError(t, charge.SetLimit(ctx, 8))
	time.Sleep(3 * time.Second)
	require.Contains(t, b.eval("document.querySelector('main').innerText"), "Limit 7")
	require.Equal(t, kept, b.eval("document.querySelector('#as-of').innerText"))
	b.do(chromedp.Evaluate("getSelection().removeAllRanges()", nil))
	b.shows("Limit 8")
	require.Equal(t, "true", b.eval("window.same === true"), "the page was not loaded again")
	require.Eventually(t, func() bool {
		return !strings.Contains(b.eval("document.querySelector('#status').innerText"), "not up to date")
	}, time.Minute, 50*time.Millisecond)
	_ = third

	// Actions, with the keyboard alone after the first link.
	b.open("queue?name=semaphore/charge")
	b.do(chromedp.Focus(fmt.Sprintf(`a[href*="do=evict"][href*="target=%d"]`, second.Token())), chromedp.KeyEvent("\r"), chromedp.WaitVisible("form.act", chromedp.ByQuery))
	b.do(chromedp.SendKeys("input[name=reason]", "stuck"), chromedp.SendKeys("input[name=confirm]", "semaphore/charge\r"), chromedp.WaitVisible(".done"))
	b.shows("The request is evicted.")
	<-second.Context().Done()
	require.ErrorContains(t, second.Err(), "ada: stuck")
	for _, c := range []struct{ link, fields, name, text string }{
		{"queue?name=semaphore/charge|set-limit", "value=9&reason=load", "semaphore/charge", "The limit is changed."},
		{"job?name=cleanup|pause", "reason=moving", "cleanup", "The job is paused."},
		{"job?name=cleanup|resume", "reason=moved", "cleanup", "The job may start again"},
		{"store?name=orders|resolve", "value=not-done&reason=not charged&force=", "orders", "The outcome is recorded."},
		{"store?name=orders&state=5|delete", "reason=a test", "orders", "The record is deleted."},
		{"queue?name=semaphore/charge|request-stop", "reason=deploy", "semaphore/charge", "The request was asked to end"},
		{"queue?name=limiter/api|set-limit", "value=4&reason=load", "limiter/api", "The limit is changed."},
		{"job?name=report|trigger", "reason=a customer waits", "report", "The job was started."},
		{"job?name=report|unlock", "reason=stuck", "report", "The job is unlocked."},
	} {
		page, verb, _ := strings.Cut(c.link, "|")
		b.open(page)
		b.do(chromedp.Click(fmt.Sprintf(`a[href^="confirm?do=%s"]`, verb)), chromedp.WaitVisible("form.act", chromedp.ByQuery))
		for field := range strings.SplitSeq(c.fields, "&") {
			switch name, value, ok := strings.Cut(field, "="); {
			case !ok:
			case value == "":
				b.do(chromedp.Click("form [name=" + name + "]"))
			default:
				b.do(chromedp.SetValue("form [name="+name+"]", value))
			}
		}
		b.do(chromedp.SendKeys("input[name=confirm]", c.name), chromedp.Click("form.act button"), chromedp.WaitVisible(".done"))
		b.shows(c.text)
	}
	// All requests of a process are ended by one form, and what was changed is listed with its reason.
	process := fmt.Sprintf("%016x", s.Lease())
	b.open("process?name=" + process)
	b.do(chromedp.Click(`a[href^="bulk?do=evict"]`), chromedp.WaitVisible("form.act"))
	b.do(chromedp.SendKeys("input[name=reason]", "it hangs"), chromedp.SendKeys("input[name=confirm]", process), chromedp.Click("form.act button"))
	b.shows(" done")
	require.Equal(t, "[]", b.eval(accessible))
	b.open("process?name=" + process)
	b.shows("It holds no permit.")
	b.open("changes?show=evict")
	b.shows("it hangs")
	require.Equal(t, "[]", b.eval(accessible))
	// A search by the key and the keyboard.
	b.do(chromedp.KeyEvent("/"))
	require.Equal(t, `"q"`, b.eval("document.activeElement.id"))
	b.do(chromedp.SetValue("#q", "cleanup", chromedp.ByQuery), chromedp.SendKeys("#q", "\r", chromedp.ByQuery), chromedp.WaitVisible(`main a[href^="job?name=cleanup"]`, chromedp.ByQuery))
	// No outcome is recorded that was not chosen.
	lost, _, err := orders.Begin(ctx, key, nil)
	require.NoError(t, err)
	require.NoError(t, lost.Abandon(ctx))
	b.open("confirm?do=resolve&name=orders&target=" + url.QueryEscape(string(ref)))
	b.do(chromedp.SendKeys("input[name=confirm]", "orders\r"))
	require.Equal(t, "true", b.eval("document.querySelector('select').matches(':invalid') && location.pathname.endsWith('/confirm')"))
	// A mistake is shown in the form, which keeps what was typed.
	b.open("confirm?do=pause&name=cleanup")
	b.do(chromedp.SetValue("input[name=reason]", "moving"), chromedp.SendKeys("input[name=confirm]", "cleanip\r"), chromedp.WaitVisible("[role=alert]"))
	b.shows("The name was not typed as it is.")
	require.Equal(t, `"moving"`, b.eval("document.querySelector('input[name=reason]').value"))
	require.Equal(t, "[]", b.eval(accessible))
	b.mu.Lock()
	b.problems = slices.DeleteFunc(b.problems, func(p string) bool { return strings.Contains(p, "400 (Bad Request)") })
	b.mu.Unlock()
	b.open("process?name=" + process)
	b.do(chromedp.Click(`a[href^="confirm?do=end-session"]`), chromedp.WaitVisible("form.act"))
	b.do(chromedp.SendKeys("input[name=reason]", "it hangs"), chromedp.SendKeys("input[name=confirm]", process+"\r"), chromedp.WaitVisible(".done"))
	b.shows("The session has ended.")
	b.fine("the actions")

	b.do(emulation.SetScriptExecutionDisabled(true))
	for _, page := range []string{"", "queue?name=semaphore/charge", "jobs"} {
		b.do(chromedp.Navigate(b.url+page), chromedp.WaitVisible("h1", chromedp.ByQuery))
		var html string
		b.do(chromedp.OuterHTML("html", &html))
		require.Contains(t, html, "as of ", page)
		require.NotContains(t, html, "NaN", page)
	}
}

// An action works without encryption, at a name that is not the loopback interface's: there, browsers send no
// Sec-Fetch-Site, and an Origin only as far as the Referrer-Policy allows it.
func TestConsoleWithoutEncryption(t *testing.T) {
	b := openTab(t)
	charge, err := concurrency.NewSemaphore(b.client(), "charge", 2, nil)
	require.NoError(t, err)
	_, err = charge.Acquire(t.Context())
	require.NoError(t, err)
	b.url = strings.Replace(b.url, "127.0.0.1", "ops.test", 1)
	b.open("confirm?do=set-limit&name=semaphore/charge")
	require.Equal(t, "false", b.eval("isSecureContext"))
	b.do(chromedp.SetValue("input[name=value]", "7"), chromedp.SetValue("form.act [name=reason]", "load"), chromedp.SendKeys("input[name=confirm]", "semaphore/charge\r"), chromedp.WaitVisible(".done"))
	b.shows("Limit 7")
	b.fine("the action")
}

// A page that is not up to date looks like that, wherever it is scrolled to, also on a phone: its ages stop, it is
// grey, and the title says so.
func TestConsoleIsAway(t *testing.T) {
	b := openTab(t)
	charge, err := concurrency.NewSemaphore(b.client(), "charge", 200, nil)
	require.NoError(t, err)
	for range 60 {
		_, err = charge.Acquire(t.Context())
		require.NoError(t, err)
	}
	b.do(chromedp.EmulateViewport(360, 740))
	b.open("queue?name=semaphore/charge")
	b.shows("60 used")
	b.broken.Store(true)
	b.shows("not up to date, status 502")
	const ages = "[...document.querySelectorAll('time[data-age]')].map(e => e.innerText)"
	stopped, shown := b.eval(ages), b.eval("document.querySelector('#status').innerText")
	for _, y := range []string{"0", "document.body.scrollHeight"} {
		require.Equal(t, "true", b.eval(`(() => {
			scrollTo(0, `+y+`);
			const at = document.querySelector("#status").getBoundingClientRect();
			return at.height > 0 && at.top >= 0 && at.bottom <= innerHeight;
		})()`), "scrolled to %s", y)
	}
	require.Equal(t, `"Not up to date – semaphore/charge – etcdkit"`, b.eval("document.title"))
	require.Equal(t, "true", b.eval("getComputedStyle(document.querySelector('td')).color === getComputedStyle(document.querySelector('caption')).color"))
	require.Equal(t, "[]", b.eval(accessible))
	require.Eventually(t, func() bool { return b.eval("document.querySelector('#status').innerText") != shown }, time.Minute, 50*time.Millisecond, "it is tried again, seconds later")
	require.Equal(t, stopped, b.eval(ages))
	b.broken.Store(false)
	require.Eventually(t, func() bool { return b.eval("document.title") == `"semaphore/charge – etcdkit"` }, time.Minute, 50*time.Millisecond)
	require.Equal(t, `""`, b.eval("document.querySelector('#status').innerText"))
	require.Equal(t, "false", b.eval("document.querySelector('main').classList.contains('stale')"))
	require.NotEqual(t, stopped, b.eval(ages))
	b.fine("the outage")
}

// Live updates can be paused, wait for the pointer, and leave the focus where it is.
func TestConsoleUpdatesLeaveAlone(t *testing.T) {
	b := openTab(t)
	ctx := t.Context()
	charge, err := concurrency.NewSemaphore(b.client(), "charge", 2, nil)
	require.NoError(t, err)
	held, err := charge.Acquire(ctx)
	require.NoError(t, err)
	const shown = "document.querySelector('main').innerText"
	b.do(chromedp.EmulateViewport(642, 740)) // narrower than its tables, the widths of which differ with names and times, and no phone
	b.open("queue?name=semaphore/charge")
	b.do(chromedp.Click("#pause"))
	b.shows("updates are paused")
	require.NoError(t, charge.SetLimit(ctx, 3))
	b.do(chromedp.Evaluate(`document.dispatchEvent(new Event("visibilitychange"))`, nil)) // upon which it would read
	var now string
	require.Eventually(t, func() bool {
		b.do(chromedp.Evaluate("fetch(location.href).then(r => r.text())", &now, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
		return strings.Contains(now, "Limit 3")
	}, time.Minute, 50*time.Millisecond)
	require.Contains(t, b.eval(shown), "Limit 2")
	require.Equal(t, "[]", b.eval(accessible))
	b.do(chromedp.Click("#pause"))
	b.shows("Limit 3")

	b.do(chromedp.Evaluate(`document.querySelector("main").dispatchEvent(new PointerEvent("pointerdown"))`, nil))
	require.NoError(t, charge.SetLimit(ctx, 4))
	b.shows("kept as it is while the pointer is down")
	require.Contains(t, b.eval(shown), "Limit 3")
	b.do(chromedp.Evaluate(`dispatchEvent(new Event("pointerup"))`, nil))
	b.shows("Limit 4")

	b.do(chromedp.Focus(".scroll[tabindex='0']"))
	require.NoError(t, charge.SetLimit(ctx, 5))
	b.shows("Limit 5")
	require.Equal(t, `"scroll"`, b.eval("document.activeElement.className"), "a table that is scrolled by keys")
	require.Contains(t, b.eval("document.activeElement.ariaLabel"), "Holders")
	second, err := charge.Acquire(ctx)
	require.NoError(t, err)
	link := fmt.Sprintf(`a[href*="do=evict"][href*="target=%d"]`, second.Token())
	b.do(chromedp.Focus(link))
	require.NoError(t, charge.SetLimit(ctx, 6))
	b.shows("Limit 6")
	require.Equal(t, "true", b.eval("document.activeElement.matches('"+link+"')"))
	require.NoError(t, second.Release(ctx))
	b.shows("1 used")
	require.Equal(t, `"scroll"`, b.eval("document.activeElement.className"), "the link's table")
	require.NoError(t, held.Release(ctx))
	b.shows("0 used")
	require.Equal(t, `"main"`, b.eval("document.activeElement.id"), "the content")
	b.fine("the updates")
}

// crowd puts a queue with a limit of 1 and so many waiters into the namespace, and returns the key of the holder. The requests are
// those of no process: as many callers would take the machine from the browser for minutes.
func (b *tab) crowd(client *clientv3.Client, waiters int) (holder string) {
	b.t.Helper()
	ctx := b.t.Context()
	space, err := keyspace.New(keyspace.DefaultPrefix, "shop")
	require.NoError(b.t, err)
	lease, err := client.Grant(ctx, 3600)
	require.NoError(b.t, err)
	q := space.Queue(keyspace.Semaphore, "crowd")
	key := func(n int) string { return q.Slot(keyspace.Slot{Lease: int64(lease.ID), Number: n, Weight: 1}) }
	puts := []clientv3.Op{clientv3.OpPut(q.Limit, record.Limit{Limit: 1}.Encode())}
	request := record.Request{Nonce: "n", Owner: "crowd", AtMS: time.Now().UnixMilli()}.Encode()
	for n := range waiters + 1 {
		puts = append(puts, clientv3.OpPut(key(n), request, clientv3.WithLease(lease.ID)))
	}
	for some := range slices.Chunk(puts, 100) {
		_, err := client.Txn(ctx).Then(some...).Commit()
		require.NoError(b.t, err)
	}
	return key(0)
}

// A queue of 10,000 waiters is a page of a hundred rows, which stays live and has others behind it.
func TestConsoleOfACrowd(t *testing.T) {
	b := openTab(t)
	client := b.etcd.NewClient(t, nil)
	holder := b.crowd(client.Client, 10_000)
	b.open("queue?name=semaphore/crowd")
	b.shows("1 to 100 of 10000")
	require.Equal(t, "100", b.eval("document.querySelectorAll('table')[1].tBodies[0].rows.length"))
	require.Equal(t, "[]", b.eval(accessible))
	took := b.eval("Math.round(performance.getEntriesByType('navigation')[0].duration)")
	t.Logf("a page of 10,000 waiters took %s ms in the browser", took)
	b.do(chromedp.Evaluate("window.same = true", nil))
	_, err := client.Delete(t.Context(), holder)
	require.NoError(t, err)
	b.shows("9999 waiting")
	require.Equal(t, "true", b.eval("window.same === true"), "the page was not loaded again")
	b.do(chromedp.Click(`nav[aria-label="Pages of the table"] a`))
	b.shows("101 to 200 of 9999")
	b.open("")
	b.shows("semaphore/crowd")
	b.fine("the crowd")
}
