package console_test

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// many returns the form of an action on many targets, as its page has it.
func (s *site) many(query string, more ...string) url.Values {
	s.t.Helper()
	form := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(s.page("/bulk?"+query), -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return form
}

// postMany sends it.
func (s *site) postMany(form url.Values, edit ...func(*http.Request)) answer {
	s.t.Helper()
	return s.post(form, append(edit, func(r *http.Request) { r.URL.Path = strings.TrimSuffix(r.URL.Path, "/action") + "/bulk" })...)
}

// All requests of one process are ended together, as far as Authorize allows it, and no others.
func TestEndAllOfAProcess(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops", &console.Options{Actor: func(*http.Request) string { return "ada" }, Authorize: func(_ *http.Request, a console.Action) error {
		if a.Verb != console.Read && a.Name == "semaphore/secret" {
			return errors.New("not this one")
		}
		return nil
	}})
	sess := s.session("web-7")
	var held []*concurrency.Permit
	for _, name := range []string{"charge", "refund", "secret"} {
		sm, err := concurrency.NewSemaphore(sess, name, 2, nil)
		require.NoError(t, err)
		held = append(held, s.acquire(sm))
	}
	other := s.acquire(s.semaphore("web-9", "charge", 2))
	full, err := concurrency.NewSemaphore(sess, "charge", 2, nil)
	require.NoError(t, err)
	refused := make(chan error, 1)
	go func() { _, err := full.Acquire(testkit.Context(t)); refused <- err }()
	name := fmt.Sprintf("%016x", sess.Lease())
	require.Eventually(t, func() bool { return strings.Contains(s.page("/process?name="+name), "Waits 1<") }, testkit.Soon, 20e6)
	require.Contains(t, s.page("/process?name="+name), "bulk?do=evict&process="+name)
	body := s.page("/bulk?do=evict&process=" + name)
	require.Contains(t, body, "3 targets")
	require.NotContains(t, body, "semaphore/secret")
	form := s.many("do=evict&process="+name, "confirm", name, "reason", "it is stuck")
	form.Set("confirm", "x")
	wrong := s.postMany(form)
	require.Equal(t, http.StatusBadRequest, wrong.StatusCode)
	require.Contains(t, wrong.body, "The name was not typed as it is. Nothing was changed.")
	form.Set("confirm", name)
	require.Equal(t, http.StatusForbidden, s.postMany(form, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }).StatusCode)
	require.NoError(t, held[0].Err())

	// A target that the operator may not end is not ended, also if the form names it.
	form.Set("targets", form.Get("targets")+" "+url.Values{"n": {"semaphore/secret"}, "t": {fmt.Sprint(held[2].Token())}}.Encode())
	made := s.postMany(form)
	require.Equal(t, http.StatusOK, made.StatusCode, made.body)
	require.Contains(t, made.body, "3 done")
	require.Contains(t, made.body, "1 failed")
	require.Contains(t, made.body, "not this one")
	for _, p := range held[:2] {
		testkit.Closed(t, p.Context().Done(), "it is evicted")
		require.ErrorContains(t, p.Err(), "ada: it is stuck")
	}
	require.ErrorContains(t, <-refused, "it is stuck")
	require.NoError(t, held[2].Err())
	require.NoError(t, other.Err())
	require.Equal(t, http.StatusConflict, s.postMany(form).StatusCode, "a form is made once")
	require.Equal(t, 1, strings.Count(s.page("/changes?show=evict"), "it is stuck"))
	require.Equal(t, http.StatusNotFound, s.get("/bulk?do=evict&process="+name).StatusCode, "nothing is left that this operator may end")
}

// Many requests get one outcome, those alone that the page has shown, as they were.
func TestResolveMany(t *testing.T) {
	t.Parallel()
	s := openLeaseless(t, &console.Options{Authorize: all})
	for i := range 3 {
		s.lose("orders", fmt.Sprint("K-", i))
	}
	require.Contains(t, s.page("/store?name=orders&only=refused"), `href="bulk?do=resolve&amp;only=refused&amp;store=orders"`)
	form := s.many("do=resolve&store=orders&scope=acme", "confirm", "orders", "reason", "the bank has nothing of them")
	wrong := s.postMany(form)
	require.Contains(t, wrong.body, "The outcome is missing.")
	require.Equal(t, 3, strings.Count(wrong.body, "unknown, POST /payments"), "what was shown is shown again")
	form.Set("value", "not-done")
	s.attempt("orders", "K-1") // meanwhile it was resolved, begun again and lost again
	late := s.lose("orders", "K-9")
	made := s.postMany(form)
	require.Equal(t, http.StatusOK, made.StatusCode, made.body)
	require.Contains(t, made.body, "2 done")
	require.Contains(t, made.body, "1 failed")
	require.Contains(t, made.body, "the record has changed since revision")
	require.Contains(t, s.page("/store?name=orders&only=refused"), "Records 1 to 2 of 2")
	require.Contains(t, s.page("/store?name=orders&only=refused"), string(late), "the page had not shown it")

	released := fmt.Sprintf("do=delete&store=orders&state=%d", idempotency.Released)
	require.Equal(t, 2, strings.Count(s.postMany(s.many(released, "confirm", "x", "reason", "tidy")).body, "released, POST /payments"))
	made = s.postMany(s.many(released, "confirm", "orders", "reason", "tidy"))
	require.Contains(t, made.body, "2 done")
	require.Contains(t, s.page("/store?name=orders&scope=acme"), "Records 1 to 2 of 2")
}

// What is no form of a page is refused.
func TestFormsOfManyTargets(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	p := s.acquire(s.semaphore("web-7", "charge", 2))
	ref := s.lose("orders", "K-1")
	line := func(name, target, revision string) string {
		return url.Values{"n": {name}, "t": {target}, "r": {revision}}.Encode()
	}
	token := line("semaphore/charge", fmt.Sprint(p.Token()), "0")
	for what, form := range map[string]url.Values{
		"too many":             {"do": {"evict"}, "process": {"0000000000000007"}, "targets": {strings.Repeat(token+" ", 201)}},
		"none":                 {"do": {"evict"}, "process": {"0000000000000007"}},
		"no lease":             {"do": {"evict"}, "process": {"7"}, "targets": {token}},
		"no action on many":    {"do": {"pause"}, "store": {"orders"}, "targets": {line("orders", string(ref), "7")}},
		"another store":        {"do": {"delete"}, "store": {"refunds"}, "targets": {line("orders", string(ref), "7")}},
		"no revision":          {"do": {"delete"}, "store": {"orders"}, "targets": {line("orders", string(ref), "0")}},
		"another form of it":   {"do": {"evict"}, "process": {"0000000000000007"}, "targets": {line("semaphore/charge", fmt.Sprint("0", p.Token()), "0")}},
		"another form of name": {"do": {"evict"}, "process": {"0000000000000007"}, "targets": {line("limiter/charge/", "7", "0")}},
	} {
		form.Set("confirm", form.Get("process")+form.Get("store"))
		form.Set("reason", "x")
		require.Equal(t, http.StatusBadRequest, s.postMany(form).StatusCode, what)
	}
	require.NoError(t, p.Err())
	reads := open(t, "", nil)
	require.Equal(t, http.StatusNotFound, reads.get("/bulk?do=delete&store=orders").StatusCode)
}

// The session of a process is ended, and no lease that is none of a session of the namespace.
func TestEndSession(t *testing.T) {
	t.Parallel()
	s := open(t, "/ops", &console.Options{Authorize: all})
	sess := s.session("web-7")
	sm, err := concurrency.NewSemaphore(sess, "charge", 2, nil)
	require.NoError(t, err)
	p := s.acquire(sm)
	name := fmt.Sprintf("%016x", sess.Lease())
	require.Contains(t, s.page("/process?name="+name), "confirm?do=end-session&name="+name)
	require.Contains(t, s.page("/confirm?do=end-session&name="+name), "web-7")
	body := s.followed(s.post(s.form("end-session", name, "", "reason", "it hangs")))
	require.Contains(t, body, "The session has ended.")
	testkit.Closed(t, p.Context().Done(), "its permit is lost")
	require.Contains(t, s.page("/changes"), "process/"+name)
	require.Equal(t, http.StatusConflict, s.submit("end-session", name, "", "reason", "x").StatusCode)
	stranger, err := s.etcd.Grant(testkit.Context(t), 600)
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, s.submit("end-session", fmt.Sprintf("%016x", stranger.ID), "", "reason", "x").StatusCode)
	ttl, err := s.etcd.TimeToLive(testkit.Context(t), stranger.ID)
	require.NoError(t, err)
	require.Positive(t, ttl.TTL)
	own := regexp.MustCompile(`process\?name=([0-9a-f]{16})"><bdi>console</bdi>`).FindStringSubmatch(s.page("/sessions"))[1]
	require.Equal(t, http.StatusBadRequest, s.submit("end-session", own, "", "reason", "x").StatusCode)
	require.NotContains(t, s.page("/process?name="+own), "confirm?do=end-session")
}

// A437: of many requests that are ended, one that waited when its page was shown was evicted although a release had admitted it since:
// the queue was read once for all of them.
func TestEndManyBesideReleases(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	var mu sync.Mutex
	var step func(target string)
	s := open(t, "", &console.Options{Authorize: func(_ *http.Request, a console.Action) error {
		mu.Lock()
		at := step
		mu.Unlock()
		if a.Verb == console.Evict && at != nil {
			at(a.Target)
		}
		return nil
	}})
	holder := s.acquire(s.semaphore("other", "charge", 1))
	sess := s.session("web-7")
	ask := func(n int) (ended chan error) {
		sm, err := concurrency.NewSemaphore(sess, "charge", 1, nil)
		require.NoError(t, err)
		ended = make(chan error, 1)
		go func() {
			p, err := sm.Acquire(testkit.Context(t))
			if err == nil {
				close(released)
				<-p.Context().Done()
				err = p.Err()
			}
			ended <- err
		}()
		for st, err := range sm.Watch(testkit.Context(t)) {
			require.NoError(t, err)
			if len(st.Waiters) == n {
				break
			}
		}
		return ended
	}
	first, second := ask(1), ask(2)
	st, err := s.semaphore("viewer", "charge", 1).Status(testkit.Context(t))
	require.NoError(t, err)
	name := fmt.Sprintf("%016x", sess.Lease())
	require.Eventually(t, func() bool { return strings.Contains(s.page("/process?name="+name), "Waits 2<") }, testkit.Soon, 20e6)
	form := s.many("do=evict&process="+name, "confirm", name, "reason", "it is stuck")
	granted, last := fmt.Sprint(st.Waiters[0].Token), make(chan struct{})
	var once sync.Once
	mu.Lock()
	step = func(target string) { // the second is ended, then the first gets the permit, then it is to be ended
		if target == granted {
			once.Do(func() {
				<-last
				require.NoError(t, holder.Release(testkit.Context(t)))
				<-released
			})
		}
	}
	mu.Unlock()
	go func() { err := <-second; require.ErrorIs(t, err, concurrency.ErrEvicted); close(last) }()
	made := s.postMany(form)
	require.Contains(t, made.body, "1 done", made.body)
	require.Contains(t, made.body, "holds a permit by now")
	select {
	case err := <-first:
		t.Fatal("the permit was ended: ", err)
	default:
	}
}
