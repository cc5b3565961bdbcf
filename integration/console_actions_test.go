package integration

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// filled fills a form in and sends it. The fields have the form name, value; the last one is the name that is typed.
func (b *tab) filled(fields ...string) {
	b.t.Helper()
	b.do(chromedp.WaitVisible("form.act", chromedp.ByQuery))
	for i := 0; i < len(fields); i += 2 {
		b.do(chromedp.SetValue("form.act [name="+fields[i]+"]", fields[i+1], chromedp.ByQuery))
	}
	require.Equal(b.t, "[]", b.eval(accessible))
	b.do(chromedp.Click("form.act button", chromedp.ByQuery))
}

// Many requests get their outcome, and are deleted, each by one form; an outcome that was recorded is corrected; and the
// limits of a limiter are changed: its total, and that of one key. The pages and the list of changes name the operator.
func TestConsoleActsOnMany(t *testing.T) {
	b := openTab(t)
	ctx := t.Context()
	s, dies := b.client(), b.client()
	orders, err := idempotency.NewStore(s, "orders", &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(t, err)
	theirs, err := idempotency.NewStore(dies, "orders", &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(t, err)
	refs := make([]idempotency.Ref, 0, 4)
	for n := range 4 {
		key := idempotency.Key{Scope: "acme", Op: "POST /payments", ID: fmt.Sprint("K-", n)}
		a, _, err := theirs.Begin(ctx, key, nil, idempotency.Note(fmt.Sprint("invoice ", n)))
		require.NoError(t, err)
		require.NoError(t, a.Abandon(ctx))
		refs = append(refs, orders.Ref(key))
	}
	require.NoError(t, dies.Close(ctx))
	states := func() (all []string) {
		for r, err := range orders.List(ctx, idempotency.Filter{}) {
			require.NoError(t, err)
			all = append(all, r.State.String()+" "+r.Resolved)
		}
		return all
	}

	// One of them alone, and its correction.
	b.open("search?q=invoice+3")
	b.do(chromedp.Click(`main a[href*="ref="]`, chromedp.ByQuery))
	b.shows("Records 1 to 1 of 1")
	b.do(chromedp.Click(`a[href^="confirm?do=resolve"]`, chromedp.ByQuery))
	b.filled("value", "failed", "reason", "the card was refused", "confirm", "orders")
	b.shows("The outcome is recorded.")
	b.open("store?name=orders&ref=" + url.QueryEscape(string(refs[3])))
	b.shows("the card was refused")
	b.do(chromedp.Click(`a[href^="confirm?do=resolve"]`, chromedp.ByQuery))
	b.shows("Correct what an operator has recorded.")
	b.filled("value", "done", "result", `{"charge":7}`, "reason", "the bank says it was paid", "confirm", "orders")
	b.shows("The outcome is recorded.")
	require.ElementsMatch(t, []string{"unknown ", "unknown ", "unknown ", "done ada"}, states())

	// The others, by one form.
	b.open("store?name=orders")
	b.do(chromedp.Click(`a[href^="bulk?"][href*="do=resolve"]`, chromedp.ByQuery))
	b.shows("3 targets")
	b.filled("value", "failed", "reason", "the provider was down", "confirm", "orders")
	b.shows("3 done")
	require.Equal(t, "[]", b.eval(accessible))
	require.ElementsMatch(t, []string{"failed ada", "failed ada", "failed ada", "done ada"}, states())
	b.open("store?name=orders&scope=acme")
	b.do(chromedp.Click(`a[href^="bulk?"][href*="do=delete"]`, chromedp.ByQuery))
	b.shows("4 targets")
	b.filled("reason", "they were tests", "confirm", "orders")
	b.shows("4 done")
	require.Empty(t, states())

	// The limits of a limiter.
	lim, err := concurrency.NewKeyedLimiter(s, "api", 5, &concurrency.KeyedLimiterOptions{Total: 20})
	require.NoError(t, err)
	_, err = lim.Key("acme").Acquire(ctx)
	require.NoError(t, err)
	b.do(chromedp.EmulateViewport(1400, 900))
	b.open("queue?name=limiter/api")
	b.shows("The total of all keys")
	b.do(chromedp.Click(`a[href^="confirm?do=set-limit"][href$="target=total"]`, chromedp.ByQuery))
	b.filled("value", "12", "reason", "the database is small", "confirm", "limiter/api")
	b.shows("The limit is changed.")
	b.shows("Limit 12")
	b.shows("Set by ada")
	b.open("queue?name=limiter/api/acme")
	b.do(chromedp.Click(`a[href^="confirm?do=set-limit"]`, chromedp.ByQuery))
	b.filled("value", "2", "reason", "acme sends too much", "confirm", "limiter/api/acme")
	b.shows("The limit is changed.")
	b.shows("Limit 2")
	st, err := lim.Key("acme").Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, st.Limit)
	total, err := lim.Total().Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 12, total.Limit)

	b.open("changes")
	for _, reason := range []string{"the card was refused", "the bank says it was paid", "the provider was down", "they were tests", "the database is small", "acme sends too much"} {
		b.shows(reason)
	}
	require.NotContains(t, b.eval("document.querySelector('main').innerText"), "console\t", "each by the operator")
	require.Equal(t, "6", b.eval(`[...document.querySelectorAll('td[data-th=Operator]')].filter(e => e.innerText === "ada").length`))

	// No reason, no action: the browser keeps the form.
	b.open("confirm?do=set-limit&name=limiter/api")
	b.do(chromedp.SetValue("form.act [name=value]", "3", chromedp.ByQuery), chromedp.SendKeys("input[name=confirm]", "limiter/api\r", chromedp.ByQuery))
	require.Equal(t, "true", b.eval("document.querySelector('input[name=reason]').matches(':invalid') && location.pathname.endsWith('/confirm')"))
	b.fine("the actions")
}

// The page of a limiter, and that of one of its keys, has the names of the other queues beside it on a wide screen, as that of
// a semaphore has; and its charts end with what the page shows.
func TestConsoleOfALimiter(t *testing.T) {
	b := openTab(t)
	ctx := t.Context()
	s := b.client()
	lim, err := concurrency.NewKeyedLimiter(s, "api", 5, &concurrency.KeyedLimiterOptions{Total: 20})
	require.NoError(t, err)
	charge, err := concurrency.NewSemaphore(s, "charge", 5, nil)
	require.NoError(t, err)
	for _, acquire := range []func() (*concurrency.Permit, error){func() (*concurrency.Permit, error) { return charge.Acquire(ctx) }, func() (*concurrency.Permit, error) { return lim.Key("acme").Acquire(ctx) }} {
		_, err := acquire()
		require.NoError(t, err)
	}
	b.do(chromedp.EmulateViewport(1400, 900))
	for _, page := range []string{"queue?name=semaphore/charge", "queue?name=limiter/api", "queue?name=limiter/api/acme"} {
		b.open(page)
		require.Equal(t, "true", b.eval(`document.querySelector("#side") !== null && document.querySelector("#side").checkVisibility()`), page)
		require.Equal(t, "1", b.eval(`document.querySelectorAll("#side a[aria-current]").length`), page)
	}
	b.open("queue?name=limiter/api")
	b.shows("Used\n1 ") // the first sample
	for range 3 {
		_, err := lim.Key("acme").Acquire(ctx)
		require.NoError(t, err)
	}
	b.shows("4 used")
	require.Equal(t, `"4"`, b.eval(`document.querySelector(".charts strong").innerText`), "not what was sampled up to 15 s ago")
	b.fine("the limiter")
}
