package console_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// form returns the form of an action as its page has it, with the name typed.
func (s *site) form(do, name, target string, more ...string) url.Values {
	s.t.Helper()
	form := url.Values{"confirm": {name}, "reason": {"it must be"}}
	body := s.page("/confirm?" + url.Values{"do": {do}, "name": {name}, "target": {target}}.Encode())
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(body, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return form
}

// attempt leaves another attempt of unknown outcome at a request.
func (s *site) attempt(store, id string) {
	s.t.Helper()
	st, err := idempotency.NewStore(s.session("web-8"), store, &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(s.t, err)
	key := idempotency.Key{Scope: "acme", Op: "POST /payments", ID: id}
	require.NoError(s.t, st.Resolve(testkit.Context(s.t), st.Ref(key), idempotency.NotDone(), idempotency.EvenIfAlive()))
	a, _, err := st.Begin(testkit.Context(s.t), key, nil)
	require.NoError(s.t, err)
	require.NoError(s.t, a.Abandon(testkit.Context(s.t)))
}

// An action is made on what its page has shown. If that has changed since, nothing is done, and no form is filled in
// again for what has come in its place; a new page is of that.
func TestChangedTargetsStay(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	ctx := testkit.Context(t)
	charge := s.semaphore("web-7", "charge", 1)
	lim, err := concurrency.NewKeyedLimiter(s.session("web-7"), "api", 5, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(t, err)
	s.acquire(lim.Key("acme"))
	jobs, err := schedlock.New(s.session("web-7"), nil)
	require.NoError(t, err)
	for _, name := range []string{"cleanup", "invoices", "reports"} {
		s.job(name, nil)
	}
	require.NoError(t, jobs.Pause(ctx, "cleanup", "harmless"))
	ref, other := s.lose("orders", "K-1"), s.lose("orders", "K-2")
	held := s.acquire(charge)
	s.wait(charge, 1)
	st, err := charge.Status(ctx)
	require.NoError(t, err)
	waiter := st.Waiters[0].Token
	again := func(name, reason string) func() error {
		return func() error {
			if err := jobs.Resume(ctx, name); err != nil {
				return err
			}
			return jobs.Pause(ctx, name, reason)
		}
	}
	for _, c := range []struct {
		do, name, target string
		more             []string
		change           func() error
	}{
		{"evict", "semaphore/charge", fmt.Sprint(waiter), nil, func() error {
			if err := held.Release(ctx); err != nil {
				return err
			}
			for st, err := range charge.Watch(ctx) {
				if err != nil || len(st.Holders) == 1 && st.Holders[0].Token == waiter {
					return err
				}
			}
			return ctx.Err()
		}},
		{"set-limit", "semaphore/charge", "", []string{"value", "10"}, func() error { return charge.SetLimit(ctx, 0) }},
		{"set-limit", "limiter/api", "", []string{"value", "10"}, func() error { return lim.SetDefault(ctx, 0) }},
		{"set-limit", "limiter/api", "total", []string{"value", "10"}, func() error { return lim.Total().SetLimit(ctx, 0) }},
		{"set-limit", "limiter/api/acme", "", []string{"value", "10"}, func() error { return lim.Key("acme").SetLimit(ctx, 1) }},
		{"resume", "cleanup", "", nil, again("cleanup", "cleanup deletes data")},
		{"pause", "invoices", "", []string{"reason", "mine"}, again("invoices", "theirs")},
		{"trigger", "reports", "", nil, again("reports", "an incident")},
		{"resolve", "orders", string(ref), []string{"value", "not-done", "force", "yes"}, func() error { s.attempt("orders", "K-1"); return nil }},
		{"delete", "orders", string(other), []string{"force", "yes"}, func() error { s.attempt("orders", "K-2"); return nil }},
	} {
		stale := []url.Values{s.form(c.do, c.name, c.target, c.more...), s.form(c.do, c.name, c.target, append(c.more, "confirm", "x")...)}
		require.NoError(t, c.change(), "%s %s", c.do, c.name)
		before := s.Values("")
		for _, form := range stale {
			a := s.post(form)
			require.Equal(t, http.StatusConflict, a.StatusCode, "%v: %s", form, a.body)
			require.Contains(t, a.body, "nothing was done, since what the page has shown of it has changed meanwhile", "%v", form)
			require.NotContains(t, a.body, `<form class="act"`, "%v", form)
		}
		after := s.Values("")
		for key := range before {
			if strings.Contains(key, "/alive") { // a session publishes its time
				delete(before, key)
				delete(after, key)
			}
		}
		require.Equal(t, before, after, "%s %s", c.do, c.name)
		if c.do != "trigger" { // of a job that is paused by then
			s.followed(s.post(s.form(c.do, c.name, c.target, c.more...)))
		}
	}
}

// A record that changes after its page was compared is kept by etcd's transaction.
func TestRecordChangesDuringTheAction(t *testing.T) {
	t.Parallel()
	for _, do := range []string{"resolve", "delete"} {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			s := open(t, "", &console.Options{Authorize: all})
			ref := s.lose("orders", "K-1")
			form := s.form(do, "orders", string(ref), "value", "not-done")
			of := func(_ string, msg any) bool {
				return strings.HasSuffix(string(msg.(*etcdserverpb.RangeRequest).Key), string(ref))
			}
			second := s.etcd.Inject(embedtest.Fault{Method: "Range", Match: of, Before: func() { s.attempt("orders", "K-1") }}) // the page is compared by a Txn
			a := s.post(form)
			require.Equal(t, 1, second.Hits())
			require.Equal(t, http.StatusConflict, a.StatusCode, a.body)
			require.Contains(t, a.body, "the record has changed since revision ")
			require.Equal(t, "2", s.facts("resolve", "orders", string(ref))["Attempt"])
		})
	}
}

// A record whose attempt is in progress has no page on which it could be deleted: by the time of the action, the
// outcome of the attempt may be unknown.
func TestRecordInProgressIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	st, err := idempotency.NewStore(s.session("web-7"), "orders", &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(t, err)
	key := idempotency.Key{Scope: "acme", Op: "POST /payments", ID: "K-1"}
	a, _, err := st.Begin(testkit.Context(t), key, nil)
	require.NoError(t, err)
	page := "/confirm?do=delete&name=orders&target=" + url.QueryEscape(string(st.Ref(key)))
	got := s.get(page)
	require.Equal(t, http.StatusConflict, got.StatusCode)
	require.Contains(t, got.body, "request is in progress")
	require.Equal(t, http.StatusConflict, s.submit("delete", "orders", string(st.Ref(key))).StatusCode)
	require.NoError(t, a.Abandon(testkit.Context(t)))
	s.followed(s.post(s.form("delete", "orders", string(st.Ref(key)), "force", "yes")))
}

// The page before a resumption says whose pause ends, and why the job was paused.
func TestConfirmationShowsThePause(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	l := s.job("invoices", nil)
	require.NotContains(t, s.facts("pause", "invoices", ""), "Paused by")
	require.NoError(t, l.Pause(testkit.Context(t), "invoices", "moving <b>"))
	for _, do := range []string{"pause", "resume", "trigger", "unlock"} {
		facts := s.facts(do, "invoices", "")
		require.Equal(t, []string{"web-7", "moving <b>"}, []string{facts["Paused by"], facts["Reason of the pause"]}, do)
		require.Regexp(t, `^[\d:]+ UTC, \d+ s ago$`, facts["Paused since"], do)
	}
}

// A form makes its action once, however often it is sent.
func TestFormsAreMadeOnce(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	l, err := schedlock.New(s.session("web-7"), nil)
	require.NoError(t, err)
	runs := make(chan struct{}, 10)
	job, err := l.Job("invoices", schedlock.Periods(24*time.Hour), func(context.Context, *schedlock.Run) error { runs <- struct{}{}; return nil })
	require.NoError(t, err)
	job.Next(time.Now()) // as a cron library does
	_, err = job.Trigger(testkit.Context(t))
	require.NoError(t, err)
	testkit.Got(t, runs, "the run that makes the job known")
	require.Eventually(t, func() bool { return s.facts("trigger", "invoices", "")["Job"] == "idle" }, testkit.Soon, 10*time.Millisecond)
	form := s.form("trigger", "invoices", "")
	var sent sync.WaitGroup
	answers := make(chan answer, 3)
	for range cap(answers) {
		sent.Go(func() { answers <- s.post(form) })
	}
	sent.Wait()
	close(answers)
	made := 0
	for a := range answers {
		if a.StatusCode == http.StatusSeeOther {
			made++
			continue
		}
		require.Equal(t, http.StatusConflict, a.StatusCode)
		require.Contains(t, a.body, "this form was sent before")
		require.Contains(t, a.body, `href="job?name=invoices"`)
	}
	require.Equal(t, 1, made)
	testkit.Got(t, runs, "the run")
	require.Empty(t, runs)
	s.followed(s.post(s.form("trigger", "invoices", "")))
}

// Many pages before an action cost etcd one read of their queue.
func TestConfirmationsShareReads(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	p := s.acquire(s.semaphore("web-7", "charge", 3))
	s.lose("orders", "K-1")
	before := s.etcd.Requests()
	const pages = 40
	for i := range pages {
		s.facts("evict", "semaphore/charge", fmt.Sprint(p.Token()))
		s.facts("set-limit", "semaphore/charge", "")
		s.page(fmt.Sprint("/store?name=orders&page=", i))
	}
	after := s.etcd.Requests()
	for _, method := range []string{"LeaseTimeToLive", "Txn"} {
		require.Less(t, after[method]-before[method], pages, method)
	}
}

// A form that ends a cooldown ends no later one.
func TestLaterCooldownStays(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	ctx := testkit.Context(t)
	l, err := schedlock.New(s.session("web-7"), nil)
	require.NoError(t, err)
	tick := time.Now().Truncate(time.Hour)
	cool := func() {
		tick = tick.Add(time.Second)
		_, err := l.Do(ctx, "invoices", func(context.Context, *schedlock.Run) error { return nil }, schedlock.AtLeast(time.Hour), schedlock.Tick(tick))
		require.NoError(t, err)
	}
	cool()
	form := s.form("unlock", "invoices", "", "reason", "x")
	require.NoError(t, l.Unlock(ctx, "invoices", "theirs"))
	cool()
	a := s.post(form)
	require.Equal(t, http.StatusConflict, a.StatusCode, a.body)
	st, err := l.Status(ctx, "invoices")
	require.NoError(t, err)
	require.True(t, st.CoolingDown)
	s.followed(s.post(s.form("unlock", "invoices", "", "reason", "x")))
	st, err = l.Status(ctx, "invoices")
	require.NoError(t, err)
	require.False(t, st.CoolingDown)
}

// A form whose target cannot be read has done nothing, says so, and can be sent again.
func TestFormOfAnOutage(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	l := s.job("invoices", nil)
	form := s.form("pause", "invoices", "", "reason", "moving")
	gone := s.etcd.Inject(embedtest.Fault{Method: "Range", Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied, Match: func(_ string, msg any) bool {
		return strings.HasSuffix(string(msg.(*etcdserverpb.RangeRequest).Key), "/pause")
	}})
	a := s.post(form)
	require.Equal(t, 1, gone.Hits())
	require.Equal(t, http.StatusBadGateway, a.StatusCode, a.body)
	require.Contains(t, a.body, "nothing was done: ")
	s.followed(s.post(form))
	st, err := l.Status(testkit.Context(t), "invoices")
	require.NoError(t, err)
	require.NotNil(t, st.Paused)
}

// An action does not wait for what its page shows besides: the list of a large namespace takes long after an idle minute.
func TestActionsDoNotWaitForTheList(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	console.SetUnseen(s.handler, time.Second)
	l := s.job("invoices", nil)
	lim, err := concurrency.NewKeyedLimiter(s.session("web-7"), "api", 5, nil)
	require.NoError(t, err)
	s.acquire(lim.Key("acme"))
	forms := []url.Values{s.form("pause", "invoices", "", "reason", "moving"), s.form("set-limit", "limiter/api", "", "value", "7")}
	require.Eventually(t, func() bool { return !console.Follows(s.handler) }, testkit.Soon, 5*time.Millisecond)
	console.SetUnseen(s.handler, time.Minute)
	listed := make(chan struct{})
	t.Cleanup(func() { close(listed) })
	s.etcd.Inject(embedtest.Fault{Method: "Range", Times: -1, Before: func() { <-listed }, Match: func(_ string, msg any) bool {
		return len(msg.(*etcdserverpb.RangeRequest).RangeEnd) > 0 && msg.(*etcdserverpb.RangeRequest).Limit > 1 // an action reads the newest one before it, to share its lease
	}})
	for _, form := range forms {
		a := s.post(form)
		require.Equal(t, http.StatusSeeOther, a.StatusCode, a.body)
	}
	st, err := l.Status(testkit.Context(t), "invoices")
	require.NoError(t, err)
	require.NotNil(t, st.Paused)
}

// The page of an action on a record reads no result, and none is offered for a record that has one already.
func TestPageOfARecordReadsNoResult(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	ctx := testkit.Context(t)
	st, err := idempotency.NewStore(s.session("web-7"), "orders", nil)
	require.NoError(t, err)
	key := idempotency.Key{Scope: "acme", Op: "POST /payments", ID: "K-1"}
	a, _, err := st.Begin(ctx, key, nil)
	require.NoError(t, err)
	target := url.QueryEscape(string(st.Ref(key)))
	got := s.get("/confirm?do=resolve&name=orders&target=" + target)
	require.Equal(t, http.StatusConflict, got.StatusCode, "it is in progress")
	require.NoError(t, a.Commit(ctx, []byte(`"`+strings.Repeat("x", 1<<20)+`"`)))
	parts := s.etcd.Inject(embedtest.Fault{Method: "Range", Times: -1, Before: func() {}, Match: func(_ string, msg any) bool {
		return strings.Contains(string(msg.(*etcdserverpb.RangeRequest).Key), string(st.Ref(key))) && len(msg.(*etcdserverpb.RangeRequest).RangeEnd) > 0
	}})
	s.page("/confirm?do=delete&name=orders&target=" + target)
	require.Zero(t, parts.Hits())
	got = s.get("/confirm?do=resolve&name=orders&target=" + target)
	require.Equal(t, http.StatusConflict, got.StatusCode)
	require.Contains(t, got.body, "its outcome is not unknown, and no operator has recorded it; the request is done")
	require.NotContains(t, got.body, `<form class="act"`)
}

// Of a limiter with a total a holder has another token than it had as a waiter. It is not said to have ended.
func TestAdmittedWithAnotherToken(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	ctx := testkit.Context(t)
	lim, err := concurrency.NewKeyedLimiter(s.session("web-7"), "api", 1, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(t, err)
	sm := lim.Key("acme")
	held := s.acquire(sm)
	s.wait(sm, 1)
	st, err := sm.Status(ctx)
	require.NoError(t, err)
	form := s.form("request-stop", "limiter/api/acme", fmt.Sprint(st.Waiters[0].Token), "reason", "x")
	require.NoError(t, held.Release(ctx))
	require.Eventually(t, func() bool { st, err = sm.Status(ctx); return err == nil && len(st.Holders) == 1 }, testkit.Soon, 5*time.Millisecond)
	a := s.post(form)
	require.Equal(t, http.StatusNotFound, a.StatusCode)
	require.Contains(t, a.body, "nothing was done: ")
	require.Contains(t, a.body, "or was admitted, and has another token since")
}
