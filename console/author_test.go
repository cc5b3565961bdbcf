package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// What an action stores names the operator that is signed in as its author, not the session of the console: limits, notices,
// pauses, unlocked runs, outcomes, changes.
func TestOperatorIsTheAuthor(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all, Actor: func(*http.Request) string { return "ada" }})
	ctx := testkit.Context(t)
	sm := s.semaphore("web-7", "charge", 2)
	held, asked := s.acquire(sm), s.acquire(sm)
	lim, err := concurrency.NewKeyedLimiter(s.session("web-7"), "api", 5, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(t, err)
	s.acquire(lim.Key("acme"))
	jobs := s.job("invoices", nil)
	running, err := schedlock.New(s.session("web-8"), nil)
	require.NoError(t, err)
	started := make(chan int64, 1)
	go func() {
		_, _ = running.Do(ctx, "reports", func(ctx context.Context, r *schedlock.Run) error {
			started <- r.Token()
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	token := testkit.Got(t, started, "a run")
	ref := s.lose("orders", "K-1")
	before := s.Values("")

	for _, name := range []string{"semaphore/charge", "limiter/api", "limiter/api/acme"} {
		require.Contains(t, s.followed(s.submit("set-limit", name, "", "value", "3")), "Set by <bdi>ada</bdi>", name)
	}
	require.Contains(t, s.followed(s.submit("set-limit", "limiter/api", "total", "value", "3")), "Set by <bdi>ada</bdi>")
	s.followed(s.submit("pause", "invoices", "", "reason", "an incident"))
	s.followed(s.submit("unlock", "reports", fmt.Sprint(token), "reason", "it hangs"))
	s.followed(s.submit("resolve", "orders", string(ref), "value", "not-done"))
	s.followed(s.submit("evict", "semaphore/charge", fmt.Sprint(held.Token()), "reason", "stuck"))
	s.followed(s.submit("request-stop", "semaphore/charge", fmt.Sprint(asked.Token()), "reason", "a release"))
	testkit.Closed(t, held.Context().Done(), "it is evicted")
	require.ErrorContains(t, held.Err(), "by ada: stuck")

	st, err := jobs.Status(ctx, "invoices")
	require.NoError(t, err)
	require.Equal(t, []string{"ada", "an incident"}, []string{st.Paused.By, st.Paused.Reason})
	runs, err := jobs.History(ctx, "reports")
	require.NoError(t, err)
	require.Equal(t, []string{"ada", "it hangs"}, []string{runs[0].By, runs[0].Error})
	orders, err := idempotency.NewStore(s.session("web-9"), "orders", nil)
	require.NoError(t, err)
	for r, err := range orders.List(ctx, idempotency.Filter{Refs: []idempotency.Ref{ref}}) {
		require.NoError(t, err)
		require.Equal(t, "ada", r.Resolved)
	}
	s.followed(s.submit("resume", "invoices", ""))

	signed := 0
	for key, value := range s.Values("") {
		var of struct{ By string }
		if json.Unmarshal([]byte(value), &of) == nil && of.By != "" && before[key] != value {
			require.Equal(t, "ada", of.By, "%s: %s", key, value)
			signed++
		}
	}
	require.GreaterOrEqual(t, signed, 4+1+2+10, "four limits, an operated job, a run and an outcome, the changes")
}
