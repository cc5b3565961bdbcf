package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// The state of a run is a text of another program, like all others.
func TestStateOfARunIsText(t *testing.T) {
	t.Parallel()
	s := open(t, "", nil)
	s.job("invoices", nil)
	space, err := keyspace.New(s.Root, "test")
	require.NoError(t, err)
	_, err = s.NewClient(t, nil).Put(testkit.Context(t), space.Job("invoices").Run(time.Now().Add(time.Hour)), record.Run{State: "do\u202ene\u200b", Attempt: 1}.Encode())
	require.NoError(t, err)
	for _, path := range []string{"/jobs", "/job?name=invoices"} {
		require.Contains(t, s.page(path), `<bdi>do\u202ene\u200b</bdi>`, path)
	}
}

// A stored time may be any number. One that no page can show keeps no page from its viewers.
func TestTimesOutOfRange(t *testing.T) {
	t.Parallel()
	s := open(t, "", &console.Options{Authorize: all})
	ctx := testkit.Context(t)
	held := s.acquire(s.semaphore("web-7", "charge", 1))
	pages := append(s.withTimes(), fmt.Sprintf("/confirm?do=evict&name=semaphore/charge&target=%d", held.Token()))
	client := s.NewClient(t, nil)
	stored := regexp.MustCompile(`"(at|start|end)":-?\d+`)
	for _, ms := range []string{"300000000000000", "-300000000000000", "253402300799999", "9223372036854775807", "-9223372036854775808"} {
		t.Run(ms, func(t *testing.T) {
			changed := 0
			for key, value := range s.Values("") {
				if other := stored.ReplaceAllString(value, `"$1":`+ms); other != value {
					_, err := client.Put(ctx, key, other, clientv3.WithIgnoreLease())
					require.NoError(t, err)
					changed++
				}
			}
			require.Greater(t, changed, 10)
			for _, path := range pages {
				got := s.get(path)
				require.Equal(t, http.StatusOK, got.StatusCode, "%s: %s", path, got.body)
			}
			require.True(t, strings.Contains(s.page("/queue?name=semaphore/charge"), fmt.Sprintf("target=%d", held.Token())), "its row is there")
		})
	}
}

// withTimes stores a time in a record of each kind, beside the holder of semaphore/charge, and returns the pages that show them.
func (s *site) withTimes() (pages []string) {
	s.t.Helper()
	ctx := testkit.Context(s.t)
	s.wait(s.semaphore("web-9", "charge", 1), 1)
	lim, err := concurrency.NewKeyedLimiter(s.session("web-7"), "api", 5, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(s.t, err)
	s.acquire(lim.Key("acme"))
	e, err := concurrency.NewElection(s.session("web-7"), "shard")
	require.NoError(s.t, err)
	_, err = e.Campaign(ctx)
	require.NoError(s.t, err)
	require.NoError(s.t, s.job("invoices", nil).Pause(ctx, "invoices", "x"))
	s.job("cleanup", nil)
	lost := s.lose("orders", "K-1")
	st, err := idempotency.NewStore(s.session("web-7"), "orders", nil)
	require.NoError(s.t, err)
	done := idempotency.Key{Scope: "acme", Op: "POST /payments", ID: "K-2"}
	a, _, err := st.Begin(ctx, done, nil)
	require.NoError(s.t, err)
	require.NoError(s.t, a.Commit(ctx, []byte("1")))
	space, err := keyspace.New(s.Root, "test")
	require.NoError(s.t, err)
	last := space.Job("cleanup").Run(time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC))
	_, err = s.NewClient(s.t, nil).Put(ctx, last, record.Run{State: record.RunDone, Attempt: 1, StartMS: 7, EndMS: 9}.Encode())
	require.NoError(s.t, err)
	return []string{
		"/", "/queue?name=semaphore/charge", "/queue?name=limiter/api", "/queue?name=limiter/api/acme", "/queue?name=election/shard", "/elections", "/jobs", "/job?name=invoices", "/job?name=cleanup",
		"/queues", "/search?q=web-7", "/stores", "/store?name=orders", fmt.Sprintf("/store?name=orders&state=%d", idempotency.Done), "/sessions",
		"/confirm?do=set-limit&name=semaphore/charge", "/confirm?do=resume&name=invoices", "/confirm?do=resolve&name=orders&target=" + url.QueryEscape(string(lost)),
		"/confirm?do=delete&name=orders&target=" + url.QueryEscape(string(st.Ref(done))),
	}
}
