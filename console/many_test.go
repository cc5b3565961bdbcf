package console_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// An action on many is one change, also if it cannot be recorded: the log has what became of each target. A viewer of the
// changes sees the names that it may read.
func TestManyAreOneChange(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	s := open(t, "", &console.Options{Logger: zap.New(core), Actor: func(*http.Request) string { return "ada" }, Authorize: func(r *http.Request, a console.Action) error {
		if a.Name == "semaphore/secret" && r.Header.Get("X-All") == "" {
			return errors.New("not this one")
		}
		return nil
	}})
	everything := func(r *http.Request) { r.Header.Set("X-All", "1") }
	sess := s.session("web-7")
	var tokens []string
	hold := func(name string) {
		sm, err := concurrency.NewSemaphore(sess, name, 9, nil)
		require.NoError(t, err)
		tokens = append(tokens, fmt.Sprint(s.acquire(sm).Token()))
	}
	for _, name := range []string{"charge", "charge", "refund", "secret"} {
		hold(name)
	}
	process := fmt.Sprintf("%016x", sess.Lease())
	require.Eventually(t, func() bool { return strings.Contains(s.page("/process?name="+process), "Holds 3<") }, testkit.Soon, testkit.Soon/1000)
	form := s.many("do=evict&process="+process, "confirm", process, "reason", "stuck")
	form.Set("targets", form.Get("targets")+" n=semaphore%2Fsecret&r=0&t="+tokens[3]+" n=semaphore%2Frefund&r=0&t=7")
	made := s.postMany(form)
	require.Contains(t, made.body, "3 done")
	require.Contains(t, made.body, "2 failed")
	require.Len(t, s.Keys("/change/"), 1)
	body := s.page("/changes")
	require.Contains(t, body, "5 targets: ")
	require.Contains(t, body, tokens[0])
	require.Contains(t, body, "2 of 5: "+tokens[3]+", 7; the log has why")
	require.Contains(t, body, "<bdi>semaphore/refund</bdi>")
	require.NotContains(t, body, "semaphore/secret")
	require.Contains(t, s.get("/changes", everything).body, "<bdi>semaphore/secret</bdi>")
	require.Contains(t, s.page("/changes?name=semaphore/charge"), "5 targets: ")
	require.NotContains(t, s.page("/changes?name=semaphore"), "5 targets: ")
	require.Contains(t, s.page("/changes?name=semaphore/none"), "There is no recorded change here that you may see.")
	outcome := func() map[string]string {
		of := map[string]string{}
		for _, e := range logs.All() {
			if target, is := e.ContextMap()["target"].(string); is && e.ContextMap()["of"] == "process/"+process {
				of[fmt.Sprint(e.ContextMap()["name"], " ", target)] = e.Message
			}
		}
		return of
	}
	require.Equal(t, map[string]string{
		"semaphore/charge " + tokens[0]: "an action of the console", "semaphore/charge " + tokens[1]: "an action of the console", "semaphore/refund " + tokens[2]: "an action of the console",
		"semaphore/secret " + tokens[3]: "an action of the console was refused", "semaphore/refund 7": "an action of the console failed",
	}, outcome())

	s.etcd.Inject(embedtest.Fault{Method: "Put", Times: -1, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied, Match: func(_ string, msg any) bool {
		return strings.Contains(string(msg.(*etcdserverpb.PutRequest).Key), "/change/")
	}})
	hold("charge")
	require.Eventually(t, func() bool { return strings.Contains(s.page("/process?name="+process), "Holds 1<") }, testkit.Soon, testkit.Soon/1000)
	require.Contains(t, s.postMany(s.many("do=evict&process="+process, "confirm", process, "reason", "stuck")).body, "1 done")
	require.Equal(t, "an action of the console", outcome()["semaphore/charge "+tokens[4]])
	warned := logs.FilterMessage("an action of the console could not be recorded in etcd").All()
	require.Len(t, warned, 1)
	require.Equal(t, []any{"process/" + process, "1 target: " + tokens[4]}, []any{warned[0].ContextMap()["name"], warned[0].ContextMap()["target"]})
}

// A form of a process ends requests of that process alone, and those alone that hold or wait as it has shown them.
func TestManyAreAsShown(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	sess := s.session("web-7")
	sm, err := concurrency.NewSemaphore(sess, "charge", 1, nil)
	require.NoError(t, err)
	first := s.acquire(sm)
	granted := make(chan *concurrency.Permit, 1)
	ctx := testkit.Context(t)
	go func() { p, _ := sm.Acquire(ctx, concurrency.Note("order 13")); granted <- p }()
	other := s.acquire(s.semaphore("web-9", "refund", 1))
	process := fmt.Sprintf("%016x", sess.Lease())
	require.Eventually(t, func() bool { return strings.Contains(s.page("/process?name="+process), "Waits 1<") }, testkit.Soon, testkit.Soon/1000)
	form := s.many("do=evict&process="+process, "confirm", "x", "reason", "stuck")
	wrong := s.postMany(form)
	require.Equal(t, http.StatusBadRequest, wrong.StatusCode)
	require.Contains(t, wrong.body, "waits order 13", "a mistake leaves what was shown")
	form.Set("confirm", process)
	require.NoError(t, first.Release(ctx))
	second := <-granted
	form.Set("targets", form.Get("targets")+fmt.Sprint(" n=semaphore%2Frefund&r=0&t=", other.Token()))
	made := s.postMany(form)
	require.Contains(t, made.body, "0 done")
	require.Contains(t, made.body, "holds a permit by now")
	require.Contains(t, made.body, "has no request of this process with token "+fmt.Sprint(other.Token()))
	require.NoError(t, second.Err())
	require.NoError(t, other.Err())
}

// What can be deleted is found behind any number of requests in progress.
func TestDeleteManyBehindThoseInProgress(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	ctx := testkit.Context(t)
	st, err := idempotency.NewStore(s.session("web-7"), "orders", nil)
	require.NoError(t, err)
	var keys []idempotency.Key
	for i := range 205 {
		keys = append(keys, idempotency.Key{Scope: "acme", Op: "POST /payments", ID: fmt.Sprint("K-", i)})
	}
	slices.SortFunc(keys, func(a, b idempotency.Key) int { return strings.Compare(string(st.Ref(a)), string(st.Ref(b))) })
	for i, key := range keys {
		a, _, err := st.Begin(ctx, key, nil)
		require.NoError(t, err)
		if i == len(keys)-1 {
			require.NoError(t, a.Abandon(ctx))
		}
	}
	require.Contains(t, s.page("/bulk?do=delete&store=orders&scope=acme"), string(st.Ref(keys[len(keys)-1])))
}

// What can be resolved is found behind any number of requests whose processes live (A318 in
// internal/proof/tested-failures.md): the page had the first two hundred, and nothing to resolve among them. What a form has
// no place for is counted.
func TestResolveManyBehindThoseThatLive(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	ctx := testkit.Context(t)
	st, err := idempotency.NewStore(s.session("web-7"), "orders", &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(t, err)
	var keys []idempotency.Key
	for i := range 206 {
		keys = append(keys, idempotency.Key{Scope: "acme", Op: "POST /payments", ID: fmt.Sprint("K-", i)})
	}
	slices.SortFunc(keys, func(a, b idempotency.Key) int { return strings.Compare(string(st.Ref(a)), string(st.Ref(b))) })
	last := keys[len(keys)-1]
	for _, key := range keys[:len(keys)-1] {
		a, _, err := st.Begin(ctx, key, nil)
		require.NoError(t, err)
		require.NoError(t, a.Abandon(ctx))
	}
	dead := s.lose("orders", last.ID)
	require.Equal(t, st.Ref(last), dead)
	form := s.many("do=resolve&store=orders&scope=acme", "confirm", "orders", "reason", "the bank has nothing of it", "value", "not-done")
	require.Equal(t, 1, strings.Count(form.Get("targets"), "n=orders"))
	require.Contains(t, form.Get("targets"), url.QueryEscape(string(dead)))
	require.Contains(t, s.page("/bulk?do=resolve&store=orders&scope=acme"), "201 targets; 5 more are left out, since their processes live")
	require.Contains(t, s.postMany(form).body, "1 done")

	for _, key := range keys[:len(keys)-1] {
		require.NoError(t, st.Resolve(ctx, st.Ref(key), idempotency.NotDone(), idempotency.EvenIfAlive()))
	}
	require.Contains(t, s.page("/bulk?do=delete&store=orders&scope=acme"), "200 targets; 6 more are left for another form")
}

// The lease of the records is replaced once etcd has ended it.
func TestChangesOnALeaseThatHasEnded(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	s.acquire(s.semaphore("web-7", "charge", 2))
	s.followed(s.submit("set-limit", "semaphore/charge", "", "value", "7"))
	resp, err := s.etcd.Get(testkit.Context(t), s.Keys("/change/")[0])
	require.NoError(t, err)
	_, err = s.etcd.Revoke(testkit.Context(t), clientv3.LeaseID(resp.Kvs[0].Lease))
	require.NoError(t, err)
	s.followed(s.submit("set-limit", "semaphore/charge", "", "value", "8"))
	require.Len(t, s.Keys("/change/"), 1)
}

// All requests of a process at a limiter with a total can be ended: those that hold, that wait for the total, and that wait
// at their key.
func TestEndAllAtALimiter(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	sess := s.session("web-7")
	lim, err := concurrency.NewKeyedLimiter(sess, "api", 1, &concurrency.KeyedLimiterOptions{Total: 1})
	require.NoError(t, err)
	s.acquire(lim.Key("acme"))
	ctx := testkit.Context(t)
	ended := make(chan error, 2)
	for _, key := range []string{"acme", "globex"} {
		go func() { _, err := lim.Key(key).Acquire(ctx); ended <- err }()
	}
	process := fmt.Sprintf("%016x", sess.Lease())
	require.Eventually(t, func() bool { return strings.Contains(s.page("/process?name="+process), "Waits 2<") }, testkit.Soon, testkit.Soon/1000)
	made := s.postMany(s.many("do=evict&process="+process, "confirm", process, "reason", "stuck"))
	require.Contains(t, made.body, "3 done", made.body)
	for range 2 {
		require.ErrorContains(t, <-ended, "stuck")
	}
}

// Many are resolved but for those whose process lives (A233 in internal/proof/tested-failures.md): the page says so and
// leaves them out, as the command does, and so does the action if a form has one. A failure was recorded of work that
// was still in progress.
func TestResolveManySparesLiveProcesses(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	ctx := testkit.Context(t)
	st, err := idempotency.NewStore(s.session("web-8"), "orders", &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(t, err)
	key := idempotency.Key{Scope: "acme", Op: "POST /payments", ID: "K-1"}
	a, _, err := st.Begin(ctx, key, nil)
	require.NoError(t, err)
	require.NoError(t, a.Abandon(ctx))
	alive := st.Ref(key)
	const page = "do=resolve&store=orders&scope=acme"
	body := s.page("/bulk?" + page)
	require.Contains(t, body, "whose process lives: it is left out")
	require.NotContains(t, body, "<form class=\"act\"", "there is nothing to resolve")
	require.Contains(t, body, "Nothing can be changed here", "a page without its form says why")

	dead := s.lose("orders", "K-2")
	require.Eventually(t, func() bool { return strings.Contains(s.page("/bulk?"+page), string(dead)) }, testkit.Soon, testkit.Soon/1000)
	require.NotContains(t, s.page("/bulk?"+page), "Nothing can be changed here")
	form := s.many(page, "confirm", "orders", "reason", "the bank has nothing of them", "value", "failed")
	require.Contains(t, form.Get("targets"), url.QueryEscape(string(dead)))
	require.NotContains(t, form.Get("targets"), url.QueryEscape(string(alive)))
	r, _, err := st.Get(ctx, alive)
	require.NoError(t, err)
	form.Set("targets", form.Get("targets")+" "+url.Values{"n": {"orders"}, "t": {string(alive)}, "r": {fmt.Sprint(r.Revision)}}.Encode())
	made := s.postMany(form)
	require.Contains(t, made.body, "1 done")
	require.Contains(t, made.body, "1 failed")
	require.Contains(t, made.body, "may still be working")
	r, _, err = st.Get(ctx, alive)
	require.NoError(t, err)
	require.Equal(t, idempotency.Unknown, r.State)
	r, _, err = st.Get(ctx, dead)
	require.NoError(t, err)
	require.Equal(t, idempotency.Failed, r.State)
}
