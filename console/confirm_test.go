package console_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// facts returns what the page before an action says of its target.
func (s *site) facts(do, name, target string) map[string]string {
	s.t.Helper()
	body := s.page("/confirm?" + url.Values{"do": {do}, "name": {name}, "target": {target}}.Encode())
	facts := map[string]string{}
	for _, m := range regexp.MustCompile(`<dt>([^<]*)</dt><dd>(.*?)</dd>`).FindAllStringSubmatch(body, -1) {
		facts[html.UnescapeString(m[1])] = html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m[2], ""))
	}
	return facts
}

// The page before an action shows what the action ends or changes. What does not exist any more has no such page.
func TestConfirmationShowsTheTarget(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	sm := s.semaphore("web-7", "charge", 1)
	held := s.acquire(sm, concurrency.Note("order <12>"), concurrency.ID("a"))
	s.wait(s.semaphore("web-9", "charge", 1), 1, concurrency.Note("order 13"))
	token := fmt.Sprint(held.Token())
	for _, do := range []string{"evict", "request-stop"} {
		facts := s.facts(do, "semaphore/charge", token)
		require.Regexp(t, `^[\d:]+ UTC, \d+ s ago$`, facts["Holds its permit since, at the earliest"])
		require.Regexp(t, `^[\d:]+ UTC, \d+ s ago$`, facts["Renewed"])
		require.Regexp(t, `^[\d:]+ UTC$`, facts["Free at the latest, if its process is dead"])
		require.Equal(t, []string{"web-7", "order <12>", "a", "1"}, []string{facts["Process"], facts["Note"], facts["ID"], facts["Weight"]})
	}
	st, err := sm.Status(testkit.Context(t))
	require.NoError(t, err)
	waiter := fmt.Sprint(st.Waiters[0].Token)
	facts := s.facts("evict", "semaphore/charge", waiter)
	require.Regexp(t, `ago$`, facts["Waits since"])
	require.Equal(t, []string{"web-9", "order 13", ""}, []string{facts["Process"], facts["Note"], facts["ID"]})
	page := "/confirm?do=evict&name=semaphore/charge&target="
	require.Contains(t, s.page(page+waiter), "Evict the waiting request with token "+waiter)
	require.Contains(t, s.page(strings.Replace(page, "evict", "request-stop", 1)+waiter), "Ask the process of the waiting request with token "+waiter+" to withdraw it")
	require.Contains(t, s.page(strings.Replace(page, "evict", "request-stop", 1)+token), "Ask the holder with token "+token)
	require.Contains(t, s.page(page+token), "Evict the request with token "+token)
	wrong := s.submit("evict", "semaphore/charge", token, "confirm", "charge")
	require.Contains(t, wrong.body, "order &lt;12&gt;", "also after a mistake")
	gone := s.get(page + "424242")
	require.Equal(t, http.StatusNotFound, gone.StatusCode)
	require.Contains(t, gone.body, "semaphore/charge has no request with token 424242: it has ended")

	require.Equal(t, map[string]string{"Limit now": "1", "Used": "1", "Waiting": "1"}, s.facts("set-limit", "semaphore/charge", ""))
	require.Equal(t, "none is stored", s.facts("set-limit", "semaphore/none", "")["Limit now"])
	require.Equal(t, http.StatusBadRequest, s.get("/confirm?do=set-limit&name=mutex/report").StatusCode)
	lim, err := concurrency.NewKeyedLimiter(s.session("web-7"), "api", 5, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(t, err)
	s.acquire(lim.Key("acme"))
	require.Equal(t, map[string]string{"Limit now": "9", "Used": "1", "Waiting": "0"}, s.facts("set-limit", "limiter/api", "total"))
	want := map[string]string{"Default limit now": "5", "Keys in use": "1", "Used, by all keys": "1", "Waiting at their key": "0"}
	require.Eventually(t, func() bool { return fmt.Sprint(s.facts("set-limit", "limiter/api", "")) == fmt.Sprint(want) }, testkit.Soon, testkit.Soon/1000)

	s.job("invoices", nil)
	require.Eventually(t, func() bool { return s.facts("pause", "invoices", "")["Job"] == "idle" }, testkit.Soon, testkit.Soon/1000)

	ref := s.lose("orders", "K-1")
	for _, do := range []string{"resolve", "delete"} {
		facts := s.facts(do, "orders", string(ref))
		require.Regexp(t, `ago$`, facts["Started"])
		delete(facts, "Started")
		require.Equal(t, map[string]string{"Reference": string(ref), "State": "unknown", "Operation": "POST /payments", "Scope": "acme", "Attempt": "1", "Process": "web-7", "That process": "it has no session: it has ended, or is cut off from etcd or paused"}, facts)
	}
	require.Equal(t, http.StatusBadRequest, s.get("/confirm?do=delete&name=orders&target=x").StatusCode)
	s.followed(s.submit("delete", "orders", string(ref)))
	require.Equal(t, http.StatusNotFound, s.get("/confirm?do=delete&name=orders&target="+url.QueryEscape(string(ref))).StatusCode)
}

// The outcome of a lost attempt is chosen: none is there before.
func TestOutcomeIsChosen(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	ref := s.lose("orders", "K-1")
	require.Contains(t, s.page("/confirm?do=resolve&name=orders&target="+url.QueryEscape(string(ref))), `<select name="value" required><option value="">`)
	for _, value := range []string{"", "x"} {
		a := s.submit("resolve", "orders", string(ref), "value", value)
		require.Equal(t, http.StatusBadRequest, a.StatusCode)
		require.Equal(t, value == "", regexp.MustCompile("The outcome is missing. Nothing was changed.").MatchString(a.body))
	}
	require.Equal(t, "unknown", s.facts("resolve", "orders", string(ref))["State"])
	again := s.submit("resolve", "orders", string(ref), "value", "not-done", "confirm", "order")
	require.Contains(t, again.body, `<option value="not-done" selected>`, "what was chosen is kept")
}
