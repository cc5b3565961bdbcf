package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// submit sends the form of an action, with the name typed.
func (s *site) submit(do, name, target string, more ...string) answer {
	s.t.Helper()
	form := url.Values{"do": {do}, "name": {name}, "target": {target}, "confirm": {name}, "reason": {"it must be"}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return s.post(form)
}

// followed returns the page to which an action that was made leads.
func (s *site) followed(a answer) string {
	s.t.Helper()
	require.Equal(s.t, http.StatusSeeOther, a.StatusCode, a.body)
	return s.page("/" + a.Header.Get("Location"))
}

// link returns where the link of an action on a page leads.
func (s *site) link(page, do string) url.Values {
	s.t.Helper()
	m := regexp.MustCompile(`href="confirm\?(do=` + do + `[^"]*)"`).FindStringSubmatch(s.page(page))
	require.NotNil(s.t, m, "%s has no link to %s", page, do)
	values, err := url.ParseQuery(html.UnescapeString(m[1]))
	require.NoError(s.t, err)
	return values
}

// A job is started by hand in the process that has it, and a run that the page has shown is unlocked: no
// other one.
func TestActionsOnARun(t *testing.T) {
	t.Parallel()
	s := openLeaseless(t, &console.Options{Authorize: all, Actor: func(*http.Request) string { return strings.Repeat("ä", 600) }})
	l, err := schedlock.New(s.session("web-7"), nil)
	require.NoError(t, err)
	started, end := make(chan *schedlock.Run, 3), make(chan struct{}, 3)
	job, err := l.Job("invoices", schedlock.Periods(24*time.Hour), func(ctx context.Context, r *schedlock.Run) error {
		started <- r
		select {
		case <-end:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, s.submit("trigger", "invoices", "").StatusCode, "nothing of it is in etcd")
	job.Next(time.Now())
	end <- struct{}{}
	_, err = job.Trigger(testkit.Context(t))
	require.NoError(t, err)
	testkit.Got(t, started, "the run that makes the job known")

	require.NotEmpty(t, s.link("/job?name=invoices", "trigger"))
	require.Contains(t, s.followed(s.submit("trigger", "invoices", "", "reason", "a customer waits")), "The job was started.")
	testkit.Got(t, started, "the run that the console has started")
	first := s.link("/job?name=invoices", "unlock").Get("target")
	require.NotEmpty(t, first)
	require.NotContains(t, s.page("/job?name=invoices"), "do=trigger", "it runs")
	again := s.submit("trigger", "invoices", "")
	require.Equal(t, http.StatusConflict, again.StatusCode)
	require.Contains(t, again.body, "no process has started job")
	end <- struct{}{}
	require.Eventually(t, func() bool { return !strings.Contains(s.page("/job?name=invoices"), "do=unlock") }, testkit.Soon, 10*time.Millisecond)
	ended := s.submit("unlock", "invoices", first, "reason", "stuck")
	require.Equal(t, http.StatusConflict, ended.StatusCode)
	require.Contains(t, ended.body, "has ended meanwhile")

	s.followed(s.submit("trigger", "invoices", ""))
	testkit.Got(t, started, "another run")
	other := s.submit("unlock", "invoices", first, "reason", "stuck")
	require.Equal(t, http.StatusConflict, other.StatusCode)
	require.Contains(t, other.body, "has ended meanwhile")
	require.Equal(t, http.StatusConflict, s.submit("unlock", "invoices", "", "reason", "stuck").StatusCode, "that is for a cooldown")
	require.Equal(t, http.StatusBadRequest, s.submit("unlock", "invoices", "0"+first, "reason", "stuck").StatusCode, "a token has one form")
	second := s.link("/job?name=invoices", "unlock").Get("target")
	require.NotEqual(t, first, second)
	require.Contains(t, s.followed(s.submit("unlock", "invoices", second, "reason", strings.Repeat("ü", 266))), "The job is unlocked.")
	require.Equal(t, http.StatusNotFound, s.submit("pause", "invioces", "", "reason", "x").StatusCode)
	require.Equal(t, http.StatusNotFound, s.submit("trigger", "invioces", "").StatusCode)
}

// Limits of a limiter: the default, the total, and that of a key. Names that etcd does not have are not
// created by a typo.
func TestLimitsOfALimiter(t *testing.T) {
	t.Parallel()
	s := openLeaseless(t, &console.Options{Authorize: all})
	lim, err := concurrency.NewKeyedLimiter(s.session("web-7"), "api", 5, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(t, err)
	_, err = lim.Key("x").Acquire(testkit.Context(t))
	require.NoError(t, err)
	body := s.page("/queue?name=limiter/api")
	require.Contains(t, body, "Change the default limit")
	require.Contains(t, body, "Change the total")
	require.Contains(t, s.page("/confirm?do=set-limit&name=limiter/api&target=total"), "Change the total of all keys")
	require.Contains(t, s.page("/confirm?do=set-limit&name=limiter/api"), "Change the default limit")
	shown := s.followed(s.submit("set-limit", "limiter/api", "total", "value", "12"))
	require.Contains(t, shown, "Limit 12, 1 used")
	require.Contains(t, shown, "Limit 5 for each key")
	shown = s.followed(s.submit("set-limit", "limiter/api", "", "value", "6"))
	require.Contains(t, shown, "Limit 12, 1 used")
	require.Contains(t, shown, "Limit 6 for each key")
	s.followed(s.submit("set-limit", "limiter/api/x", "", "value", "2"))
	require.Regexp(t, `<td data-th="Limit" class="n">2, its own</td>`, s.page("/queue?name=limiter/api"))
	require.Contains(t, s.page("/queue?name=limiter/api/x"), "Remove the limit")
	preview := s.page("/confirm?do=set-limit&name=limiter/api/x&target=default")
	require.Contains(t, preview, "it has the default again")
	require.Contains(t, preview, "<dt>Default limit</dt><dd><bdi>6</bdi></dd>")
	require.NotContains(t, s.followed(s.submit("set-limit", "limiter/api/x", "default")), "Remove the limit")
	require.Regexp(t, `<td data-th="Limit" class="n">6</td>`, s.page("/queue?name=limiter/api"))
	require.Equal(t, http.StatusConflict, s.get("/confirm?do=set-limit&name=limiter/api/x&target=default").StatusCode, "it has none")
	require.Equal(t, http.StatusBadRequest, s.submit("set-limit", "limiter/api", "default").StatusCode)
	require.Contains(t, s.page("/changes?name=limiter/api/x"), "<bdi>the default</bdi>")
	keys := func() []string { // without what is recorded of an action
		return slices.DeleteFunc(s.Keys(""), func(key string) bool { return strings.Contains(key, "/change/") })
	}
	before := keys()
	for _, name := range []string{"limiter/apl", "semaphore/chrage"} {
		require.Equal(t, http.StatusNotFound, s.submit("set-limit", name, "", "value", "6").StatusCode, name)
	}
	require.Equal(t, http.StatusNotFound, s.submit("set-limit", "limiter/apl", "total", "value", "6").StatusCode)
	for _, do := range []string{"evict", "request-stop"} {
		require.Equal(t, http.StatusConflict, s.submit(do, "mutex/none", "7", "reason", "x").StatusCode, do)
	}
	require.Equal(t, before, keys(), "nothing is written")
}

// Of a request of unknown outcome an operator records that it was done, with its result.
func TestResolveWithAResult(t *testing.T) {
	t.Parallel()
	s := openLeaseless(t, &console.Options{Authorize: all})
	ref := s.lose("orders", "K-1")
	form := s.page("/confirm?do=resolve&name=orders&target=" + url.QueryEscape(string(ref)))
	require.Contains(t, form, `<textarea name="result"`)
	require.Contains(t, form, "etcdkit requests resolve STORE REF --done FILE")
	require.Contains(t, s.submit("resolve", "orders", string(ref), "value", "done", "result", "{").body, "The result is no JSON.")
	require.Contains(t, s.submit("resolve", "orders", string(ref), "value", "failed", "reason", "").body, "The reason is missing.")
	require.Equal(t, http.StatusBadRequest, s.submit("resolve", "orders", string(ref), "value", "maybe").StatusCode)
	big := `"` + strings.Repeat("x", 129<<10) + `"`
	require.Equal(t, http.StatusBadRequest, s.submit("resolve", "orders", string(ref), "value", "done", "result", big).StatusCode)
	s.followed(s.submit("resolve", "orders", string(ref), "value", "done", "result", `{"charge":7}`))
	st, err := idempotency.NewStore(s.session("web-8"), "orders", &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(t, err)
	out, err := idempotency.Do(testkit.Context(t), st, idempotency.Key{Scope: "acme", Op: "POST /payments", ID: "K-1"}, nil, func(context.Context, *idempotency.Attempt) (map[string]int, error) {
		t.Error("it is done again")
		return nil, nil
	})
	require.NoError(t, err)
	got, err := json.Marshal(out)
	require.NoError(t, err)
	require.Contains(t, string(got), "7")
	require.Equal(t, http.StatusConflict, s.submit("resolve", "orders", string(ref), "value", "not-done").StatusCode)
	require.Equal(t, http.StatusNotFound, s.submit("delete", "odrers", string(ref)).StatusCode)
}

// The result of a request is filled in as its entry replays it: a response of idemhttp has a status, headers and a
// body; a message of gRPC is no text, and JSON is refused for both (U1 in internal/proof/tested-failures.md).
func TestResolveByEntry(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	st, err := idempotency.NewStore(s.session("web-8"), "orders", &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(t, err)
	key := func(id string) idempotency.Key { return idempotency.Key{Scope: "acme", Op: "POST /payments", ID: id} }
	begin := func(id string) string {
		a, _, err := st.Begin(testkit.Context(t), key(id), nil, idempotency.Via(id), idempotency.Note("order of "+id))
		require.NoError(t, err)
		require.NoError(t, a.Abandon(testkit.Context(t)))
		return string(st.Ref(key(id)))
	}
	submit := func(ref string, more ...string) answer { return s.post(s.form("resolve", "orders", ref, more...)) }
	http1, rpc, over := begin("http"), begin("grpc"), begin("http/connect")
	require.Eventually(t, func() bool { return strings.Contains(s.page("/store?name=orders"), "order of http") }, testkit.Soon, testkit.Soon/1000)
	facts := s.facts("resolve", "orders", http1)
	require.Equal(t, []string{"order of http", "http", "lives, and may still be working"}, []string{facts["Note"], facts["Begun via"], facts["That process"]})
	form := s.page("/confirm?do=resolve&name=orders&target=" + url.QueryEscape(http1))
	require.Contains(t, form, `<textarea name="header"`)
	bad := submit(http1, "value", "done", "result", `{"charge":7}`)
	require.Equal(t, http.StatusBadRequest, bad.StatusCode)
	require.Contains(t, bad.body, "The status is not a number")
	bad = submit(http1, "value", "done", "status", "201", "header", "Content-Length: 7", "result", `{"charge":7}`)
	require.Contains(t, bad.body, "never recorded")
	require.Contains(t, bad.body, "Content-Length: 7</textarea>", "what was filled in is kept")
	require.Contains(t, submit(http1, "value", "done", "status", "201", "header", "x").body, "The headers are not lines")
	require.Contains(t, submit(http1, "value", "done", "status", "201", "header", "Content-Type: text/plain\r\n\r\nLocation: /payments/7").body, "The headers are not lines", "U8")
	require.Equal(t, http.StatusBadRequest, submit(http1, "via", "", "value", "done", "result", `{"charge":7}`).StatusCode, "nor by a script")
	s.followed(submit(http1, "value", "done", "status", "201", "header", "Content-Type: application/json\r\nLocation: /payments/7", "result", `{"charge":7}`))
	_, out, err := st.Begin(testkit.Context(t), key("http"), nil)
	require.NoError(t, err)
	res, err := idemhttp.Decode(out.Value)
	require.NoError(t, err)
	require.Equal(t, []string{"201", "/payments/7", `{"charge":7}`}, []string{fmt.Sprint(res.Status), res.Header.Get("Location"), string(res.Body)})

	require.Contains(t, s.page("/confirm?do=resolve&name=orders&target="+url.QueryEscape(rpc)), "--message FILE")
	require.Contains(t, submit(rpc, "value", "done", "result", `{"charge":7}`).body, "A message of gRPC or Connect is no text")
	require.Equal(t, "unknown", s.facts("resolve", "orders", rpc)["State"])
	require.Contains(t, s.page("/confirm?do=resolve&name=orders&target="+url.QueryEscape(over)), "--message FILE", "V31")
	require.Contains(t, submit(over, "value", "done", "status", "201", "result", `{"charge":7}`).body, "gRPC or Connect is no text")
}

// A request runs again, by NotDone or by the deletion of its record, only if the operator says that it does not count
// that its process lives (U3).
func TestLiveProcess(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	st, err := idempotency.NewStore(s.session("web-8"), "orders", &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(t, err)
	for do, value := range map[string]string{"resolve": "not-done", "delete": ""} {
		key := idempotency.Key{Scope: "acme", Op: "POST /payments", ID: do}
		a, _, err := st.Begin(testkit.Context(t), key, nil)
		require.NoError(t, err)
		require.NoError(t, a.Abandon(testkit.Context(t)))
		ref := string(st.Ref(key))
		require.Contains(t, s.page("/confirm?do="+do+"&name=orders&target="+url.QueryEscape(ref)), `name="force"`)
		refused := s.submit(do, "orders", ref, "value", value)
		require.Equal(t, http.StatusConflict, refused.StatusCode)
		require.Contains(t, refused.body, "may still be working")
		s.followed(s.submit(do, "orders", ref, "value", value, "force", "yes"))
	}
	ref := s.lose("orders", "K-1")
	require.Equal(t, "it has no session: it has ended, or is cut off from etcd or paused", s.facts("resolve", "orders", string(ref))["That process"])
	require.NotContains(t, s.page("/confirm?do=resolve&name=orders&target="+url.QueryEscape(string(ref))), `name="force"`)
}

// An operator's outcome is corrected, and the page shows what was recorded before; a function's has no such page.
func TestCorrection(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all, Actor: func(*http.Request) string { return "ada" }})
	ref := s.lose("orders", "K-1")
	s.followed(s.post(s.form("resolve", "orders", string(ref), "value", "done", "result", `{"charge":7}`)))
	form := s.page("/confirm?do=resolve&name=orders&target=" + url.QueryEscape(string(ref)))
	require.Contains(t, form, "duplicates may get either outcome")
	require.NotContains(t, form, `value="not-done"`)
	require.Equal(t, http.StatusConflict, s.post(s.form("resolve", "orders", string(ref), "value", "not-done")).StatusCode)
	s.followed(s.post(s.form("resolve", "orders", string(ref), "value", "failed", "reason", "never charged")))
	require.Contains(t, s.page(fmt.Sprintf("/store?name=orders&state=%d", idempotency.Failed)), ">Correct</a>")
	facts := s.facts("resolve", "orders", string(ref))
	require.Equal(t, "never charged", facts["Failure"])
	require.Contains(t, facts["Before that"], "done, by ada, ")
}

// The records of a store have pages, of any state.
func TestPagesOfRecords(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	st, err := idempotency.NewStore(s.session("web-7"), "orders", nil)
	require.NoError(t, err)
	for n := range 205 {
		_, err := idempotency.Do(testkit.Context(t), st, idempotency.Key{Scope: "acme", Op: "POST /payments", ID: fmt.Sprint(n)}, nil, func(context.Context, *idempotency.Attempt) (int, error) { return n, nil })
		require.NoError(t, err)
	}
	seen := map[string]bool{}
	ref := regexp.MustCompile(`<th scope="row" class="ref"><code class="copied">([^<]*)</code>`)
	for page, caption := range []string{"Records 1 to 100 of 205<", "Records 101 to 200 of 205<", "Records 201 to 205 of 205<"} {
		body := s.page(fmt.Sprintf("/store?name=orders&state=%d&page=%d", idempotency.Done, page))
		require.Contains(t, body, caption)
		require.Equal(t, page > 0, strings.Contains(body, ">Earlier<"))
		require.Equal(t, page < 2, strings.Contains(body, ">Later<"))
		for _, m := range ref.FindAllStringSubmatch(body, -1) {
			seen[m[1]] = true
		}
	}
	require.Len(t, seen, 205)
	require.Contains(t, s.page("/store?name=orders&page=7"), "No record is in this state")
	require.Contains(t, s.page("/store?name=ordres"), "etcd has nothing of a store of this name")
}

// A form with a mistake is shown again, with what was filled in and what is wrong; nothing is changed.
func TestMistakesInAForm(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	s.job("invoices", nil)
	before := s.Values("")
	for want, form := range map[string][]string{
		"The name was not typed as it is. Nothing was changed.": {"reason", "month&#39;s end", "confirm", "invoice"},
		"The reason is missing.":                                {"reason", "  "},
		"The reason has 801 bytes, more than 800.":              {"reason", strings.Repeat("x", 801)},
		"The reason has characters that are not text.":          {"reason", "a\x00b"},
		"The reason has characters that are not text. ":         {"reason", "a\xffb"},
	} {
		a := s.submit("pause", "invoices", "", form...)
		require.Equal(t, http.StatusBadRequest, a.StatusCode)
		require.Contains(t, a.body, `role="alert"`)
		require.Contains(t, a.body, want)
		require.Contains(t, a.body, `<button type="submit">Pause`)
		require.Contains(t, a.body, "<h1><bdi>pause invoices</bdi></h1>")
		if form[0] == "reason" && len(form[1]) < 20 && !strings.ContainsFunc(form[1], func(r rune) bool { return r == 0 || r == utf8.RuneError || r == ' ' }) {
			require.Contains(t, a.body, form[1], "what was typed is kept")
		}
	}
	for _, value := range []string{"", "x", "-1", "2147483648", "1e3"} {
		require.Contains(t, s.submit("set-limit", "semaphore/x", "", "value", value).body, "The limit is not a number", value)
	}
	require.Equal(t, before, s.Values(""))
}

// That something was done is shown after it was done, and not because a link says so.
func TestDoneIsNotForged(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	s.acquire(s.semaphore("web-7", "charge", 3))
	for _, key := range []string{"evict", "set-limit", "x"} {
		require.NotContains(t, s.page("/?done="+key), `class="done"`)
	}
	require.Contains(t, s.followed(s.submit("set-limit", "semaphore/charge", "", "value", "4")), "The limit is changed.")
}

// Each action is logged with the operator, and so is one that fails.
func TestActionsAreLogged(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	s := open(t, "", &console.Options{Authorize: all, Actor: func(*http.Request) string { return "ada" }, Logger: zap.New(core)})
	p := s.acquire(s.semaphore("web-7", "charge", 3))
	token := fmt.Sprint(p.Token())
	s.followed(s.submit("evict", "semaphore/charge", token, "reason", "stuck"))
	require.Equal(t, http.StatusConflict, s.submit("evict", "semaphore/charge", token, "reason", "stuck").StatusCode)
	fields := map[string]any{"action": "evict", "name": "semaphore/charge", "target": token, "actor": "ada", "value": "", "reason": "stuck"}
	require.Equal(t, fields, logs.FilterMessage("an action of the console").All()[0].ContextMap())
	failed := logs.FilterMessage("an action of the console failed").All()
	require.Len(t, failed, 1)
	got := failed[0].ContextMap()
	require.NotEmpty(t, got["error"])
	delete(got, "error")
	require.Equal(t, fields, got)
}

// Each action that is refused is logged, as a warning, with who has asked for what; a flood of them is not.
func TestRefusedActionsAreLogged(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	s := open(t, "", &console.Options{Authorize: func(_ *http.Request, a console.Action) error {
		if a.Verb == console.Evict {
			return errors.New("ask the owner")
		}
		return nil
	}, Actor: func(*http.Request) string { return "ada" }, Logger: zap.New(core)})
	require.Equal(t, http.StatusForbidden, s.submit("evict", "semaphore/charge", "7", "reason", "stuck").StatusCode)
	form := url.Values{"do": {"evict"}, "name": {"semaphore/charge"}, "target": {"7"}}
	require.Equal(t, http.StatusForbidden, s.post(form, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }).StatusCode)
	require.Equal(t, http.StatusMisdirectedRequest, s.post(form, func(r *http.Request) { r.Host = "evil.example" }).StatusCode)
	require.Equal(t, http.StatusUnsupportedMediaType, s.post(form, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }).StatusCode)
	require.Equal(t, http.StatusBadRequest, s.submit("evict", "semaphore/charge", "07", "reason", "stuck").StatusCode)
	refused := logs.FilterMessage("an action of the console was refused").All()
	require.Len(t, refused, 5)
	for i, want := range []struct{ error, action string }{
		{"ask the owner", "evict semaphore/charge 7 ada stuck"}, {`Sec-Fetch-Site "cross-site"`, "evict semaphore/charge 7 ada "},
		{`not at the host "evil.example"`, "<nil> <nil> <nil> <nil> <nil>"}, {"Content-Type", "<nil> <nil> <nil> <nil> <nil>"}, // whose form is not read
		{`"07" is no target`, "evict semaphore/charge 07 ada stuck"},
	} {
		got := refused[i].ContextMap()
		require.Equal(t, zap.WarnLevel, refused[i].Level)
		require.Contains(t, got["error"], want.error)
		require.NotEmpty(t, got["from"])
		require.Equal(t, want.action, fmt.Sprint(got["action"], " ", got["name"], " ", got["target"], " ", got["actor"], " ", got["reason"]))
	}
	began := time.Now()
	for range 300 {
		s.post(form, func(r *http.Request) { r.Host = "evil.example" })
	}
	seconds := int(time.Since(began)/time.Second) + 2
	require.LessOrEqual(t, logs.FilterMessage("an action of the console was refused").Len(), 10*seconds)
}
