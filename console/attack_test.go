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
		"": 303, "/": 200, "/jobs": 200, "//": 404, "//queue?name=x": 404, "/./jobs": 404, "/x/../jobs": 404, "//evil.example/": 404, "/static/../jobs": 404, "/static/../": 404, "/./": 404, "/x/..": 404, "/jobs/": 404, "/static/": 404,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/ops"+path, nil)
		r.Host = "localhost"
		http.StripPrefix("/ops", h).ServeHTTP(w, r)
		to := w.Header().Get("Location")
		require.True(t, to == "" || to == "/ops/", "%s leads to %s", path, to)
		require.Equal(t, want, w.Code, path)
		if path == "" {
			continue
		}
		w = httptest.NewRecorder()
		http.StripPrefix("/ops/", h).ServeHTTP(w, r)
		require.Empty(t, w.Header().Get("Location"), path)
		if !strings.HasPrefix(path, "//") { // of which that prefix takes both
			require.Equal(t, want, w.Code, "%s below a prefix with a slash", path)
		}
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

// A name and a target have one form each, so a rule of Authorize about one of them cannot be passed by another
// form of it.
func TestNamesHaveOneForm(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: func(_ *http.Request, a console.Action) error {
		if a.Name == "limiter/secret" || a.Verb == console.SetLimit && a.Target == "" || a.Target == "7" {
			return errors.New("not this one")
		}
		return nil
	}})
	sess := s.session("web-7")
	for _, name := range []string{"secret", "open"} {
		lim, err := concurrency.NewKeyedLimiter(sess, name, 5, &concurrency.KeyedLimiterOptions{Total: 9})
		require.NoError(t, err)
		_, err = lim.Key("acme").Acquire(testkit.Context(t))
		require.NoError(t, err)
	}
	s.acquire(s.semaphore("web-7", "charge", 1))
	require.Equal(t, 403, s.get("/queue?name=limiter/secret").StatusCode)
	for _, name := range []string{"limiter/secret/", "limiter//secret", "limiter/", "/limiter/secret", "semaphore/"} {
		require.Equal(t, 400, s.get("/queue?name="+name).StatusCode, name)
		require.Equal(t, 400, s.post(url.Values{"do": {"set-limit"}, "name": {name}, "confirm": {name}, "value": {"0"}, "target": {"total"}}).StatusCode, name)
	}
	for _, c := range []struct{ verb, name, target string }{
		{"set-limit", "semaphore/charge", "total"}, {"set-limit", "limiter/open/acme", "total"}, {"set-limit", "limiter/open", "all"},
		{"evict", "semaphore/charge", "07"}, {"evict", "semaphore/charge", "+7"}, {"request-stop", "semaphore/charge", ""},
		{"pause", "invoices", "x"}, {"trigger", "invoices", "x"},
	} {
		form := url.Values{"do": {c.verb}, "name": {c.name}, "target": {c.target}, "confirm": {c.name}, "value": {"3"}, "reason": {"r"}}
		require.Equal(t, 400, s.post(form).StatusCode, "%v", c)
		require.Equal(t, 400, s.get("/confirm?"+form.Encode()).StatusCode, "%v", c)
	}
	body := s.page("/queue?name=limiter/open")
	require.Contains(t, body, "target=total", "who may change the total alone is offered that")
	require.NotContains(t, body, "Change the default limit")
}

// A link fills in nothing that an operator is to type: it would be one key from the action.
func TestLinksFillInNothing(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	s.acquire(s.semaphore("web-7", "charge", 3))
	s.job("invoices", nil)
	ref := s.lose("orders", "K-1")
	for _, link := range []string{
		"do=set-limit&name=semaphore/charge&value=4711&confirm=semaphore/charge", "do=pause&name=invoices&reason=4711&confirm=invoices",
		"do=resolve&name=orders&target=" + string(ref) + "&value=done&result=4711&confirm=orders",
	} {
		body := s.page("/confirm?" + link)
		require.NotContains(t, body, "4711")
		require.NotContains(t, body, " selected")
		require.Contains(t, body, `<input name="confirm" required autocomplete="off" value="">`)
	}
	form := url.Values{"do": {"set-limit"}, "name": {"semaphore/charge"}, "value": {"4711"}, "reason": {"load"}}
	r, err := http.NewRequestWithContext(testkit.Context(t), http.MethodPost, s.url+"/action?confirm=semaphore/charge", strings.NewReader(form.Encode()))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	require.Equal(t, 400, s.do(r).StatusCode)
}

// A name that is not all visible is shown so that it differs from others, and typed as it is shown.
func TestNamesAreTypedAsShown(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	sess := s.session("web-7")
	for name, shown := range map[string]string{
		"a\u200bb": `a\u200bb`, "charge\u034f": `charge\u034f`, "charge\ufe0f": `charge\ufe0f`, "\u3164": `\u3164`, "\u2800": `\u2800`, "\u115f": `\u115f`, "\uffa0": `\uffa0`,
		"a\u00a0b": `a\u00a0b`, "a\u3000b": `a\u3000b`, "\U000e0100": `\U000e0100`, " charge": " charge", "charge ": `charge\u0020`, "charge  x": `charge \u0020x`, "a b": "a b", "  ": ` \u0020`,
		"a\u0301\u0302": "a\u0301\u0302", "a" + strings.Repeat("\u0301", 4): "a\u0301\u0301" + `\u0301\u0301`, "\u200b\u0301": `\u200b\u0301`,
		"ด้วย": "ด้วย", "नमस्ते": "नमस्ते", "\u00e9": "\u00e9", "日本 🚀": "日本 🚀",
	} {
		sm, err := concurrency.NewSemaphore(sess, name, 3, nil)
		require.NoError(t, err)
		s.acquire(sm, concurrency.Note(" \u20e3"))
		name, shown := "semaphore/"+name, "semaphore/"+shown
		require.Contains(t, s.page("/queue?name="+url.QueryEscape(name)), "<h1><bdi>"+shown+"</bdi></h1>")
		require.Contains(t, s.page("/confirm?do=set-limit&name="+url.QueryEscape(name)), ">"+shown+"</strong>")
		form := url.Values{"do": {"set-limit"}, "name": {name}, "value": {"5"}, "confirm": {shown}, "reason": {"load"}}
		require.Contains(t, s.followed(s.post(form)), "The limit is changed.", shown)
	}
	require.Contains(t, s.page("/queue?name=semaphore/a+b"), `<bdi>\u0020\u20e3</bdi>`, "a note that begins so")
}
