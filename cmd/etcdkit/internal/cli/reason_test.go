package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// changes returns the list of changes, the oldest first. Each has an author and ends by itself.
func changes(f *clitest.Fixture) (all []record.Change) {
	f.T.Helper()
	space, err := keyspace.New(f.Prefix, "test")
	require.NoError(f.T, err)
	resp, err := f.Etcd.Client().Get(testkit.Context(f.T), space.Changes(), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	require.NoError(f.T, err)
	for _, kv := range resp.Kvs {
		c, ok := record.DecodeChange(kv.Value)
		require.True(f.T, ok)
		require.Contains(f.T, c.By, " by ", "the verb, and the user")
		require.NotZero(f.T, kv.Lease)
		require.False(f.T, c.Open)
		all = append(all, c)
	}
	return all
}

// What a verb changes with a --reason is in the list of changes that a console shows, as an action of the console would be;
// what it changes without one is not.
func TestReasons(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	s := f.Session("web-7")
	sm, err := concurrency.NewSemaphore(s, "charge", 5, nil)
	require.NoError(t, err)
	p := f.Permit(sm.Acquire(ctx))
	lim, err := concurrency.NewKeyedLimiter(s, "api", 5, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(t, err)
	f.Permit(lim.Key("acme").Acquire(ctx))
	_, err = f.Locker("web-7").Do(ctx, "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	for _, args := range [][]string{
		{"limit", "charge", "6"}, // without a reason
		{"limit", "charge", "7", "--reason", "our quota was raised"}, {"limit", "limiter/api", "4", "--reason", "load"},
		{"limit", "limiter/api", "8", "--total", "--reason", "load"}, {"limit", "limiter/api/acme", "3", "--reason", "load"},
		{"limit", "limiter/api/acme", "--clear", "--reason", "no load"},
		{"limit", "rate/mail", "50", "--create", "--reason", "new"}, {"limit", "rate/mail", "60", "--burst", "3", "--reason", "more"},
		{"jobs", "pause", "invoices", "--reason", "a migration"}, {"jobs", "resume", "invoices", "--reason", "it is done"}, {"jobs", "resume", "invoices"},
		{"evict", "charge", fmt.Sprint(p.Token()), "--force", "--yes", "--reason", "stuck"},
	} {
		r := f.Run(append(args, "-N", "test")...)
		require.Zero(t, r.Code, "%v: %s", args, r.Err)
	}
	var got []string
	for _, c := range changes(f) {
		got = append(got, fmt.Sprintf("%s %s %s: %s > %s: %s", c.Verb, c.Name, c.Target, c.Before, c.After, c.Reason))
	}
	require.Equal(t, []string{
		"set-limit semaphore/charge : 6 > 7: our quota was raised", "set-limit limiter/api : 5 > 4: load", "set-limit limiter/api total: 9 > 8: load",
		"set-limit limiter/api/acme : 4 > 3: load", "set-limit limiter/api/acme : 3 > the default: no load",
		"set-limit rate/mail :  > 50 per second: new", "set-limit rate/mail : 50 per second, burst 1 > 60 per second, burst 3: more",
		"pause job/invoices :  > : a migration", "resume job/invoices :  > : it is done", fmt.Sprintf("evict semaphore/charge %d:  > : stuck", p.Token()),
	}, got)

	r := f.Run("limit", "-N", "test", "charge", "--reason", "none")
	require.Equal(t, exit.Usage, r.Code)
	require.Contains(t, r.Err, "semaphore/charge: --reason is for a change")
}

// What a verb has asked for with a --reason is in the list of changes also if it was not done by then: it may be done later
// (A311 in internal/proof/tested-failures.md).
func TestReasonsOfWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	m, err := concurrency.NewMutex(f.Session("web-7"), "report")
	require.NoError(t, err)
	p := f.Permit(m.Lock(ctx)) // which does not watch for a request to stop
	_, err = f.Locker("web-7").Do(ctx, "invoices", clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
	require.NoError(t, err)
	for _, args := range [][]string{
		{"evict", "mutex/report", fmt.Sprint(p.Token()), "--yes", "--wait", "1ms", "--reason", "stuck"},
		{"jobs", "trigger", "invoices", "--wait", "1ms", "--reason", "a customer waits"},
		{"evict", "mutex/report", "1", "--yes", "--reason", "there is none"},
	} {
		require.NotZero(t, f.Run(append(args, "-N", "test")...).Code, args)
	}
	var got []string
	for _, c := range changes(f) {
		require.NotEmpty(t, c.Failed)
		got = append(got, fmt.Sprintf("%s %s %s: %s", c.Verb, c.Name, c.Target, c.Reason))
	}
	require.Equal(t, []string{fmt.Sprintf("request-stop mutex/report %d: stuck", p.Token()), "trigger job/invoices : a customer waits"}, got)
}

// Commands share the lease of what they record, as long as it lasts for nearly all of the time that a record is kept: a
// script leaves no lease for each of its changes.
func TestReasonsShareALease(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	space, err := keyspace.New(f.Prefix, "test")
	require.NoError(t, err)
	sm, err := concurrency.NewSemaphore(f.Session("web-7"), "charge", 5, nil)
	require.NoError(t, err)
	f.Permit(sm.Acquire(ctx))
	client := f.Etcd.Client()
	lease := func(limit int) clientv3.LeaseID {
		t.Helper()
		r := f.Run("limit", "-N", "test", "charge", fmt.Sprint(limit), "--reason", "load")
		require.Zero(t, r.Code, r.Err)
		require.Empty(t, r.Err)
		resp, err := client.Get(ctx, space.Changes(), clientv3.WithLastKey()...)
		require.NoError(t, err)
		return clientv3.LeaseID(resp.Kvs[0].Lease)
	}
	first := lease(6)
	require.NotZero(t, first)
	require.Equal(t, first, lease(7))
	old, err := client.Grant(ctx, 29*24*3600)
	require.NoError(t, err)
	_, err = client.Put(ctx, space.Change(time.Now().UnixMilli(), "old"), record.Change{}.Encode(), clientv3.WithLease(old.ID))
	require.NoError(t, err)
	last := lease(8)
	require.NotEqual(t, old.ID, last, "it would end too soon")
	require.Equal(t, last, lease(9))
}

// A request that is deleted leaves nothing else, one that is resolved ends a doubt for good, and a job that is forgotten takes
// its history with it: they are in the list of changes also without a reason, and many requests as one change
// (A317 in internal/proof/tested-failures.md).
func TestRecordedWithoutAReason(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	ctx := testkit.Context(t)
	orders := f.StoreOf("web-7", "orders", nil)
	of := func(id string) []string { // the store, the reference and the revision
		f.Lost("orders", clitest.Order(id))
		r, _, err := orders.Get(ctx, orders.Ref(clitest.Order(id)))
		require.NoError(t, err)
		return []string{"orders", string(r.Ref), "--revision", fmt.Sprint(r.Revision)}
	}
	first, second, third := of("1"), of("2"), of("3")
	retired := f.Session("web-8")
	l, err := schedlock.New(retired, nil)
	require.NoError(t, err)
	for _, job := range []string{"invoices", "reports"} {
		_, err = l.Do(ctx, job, clitest.Nothing, schedlock.Tick(clitest.Tick(0)))
		require.NoError(t, err)
	}
	require.NoError(t, retired.Close(ctx))
	many := []string{"requests", "resolve", "orders", "--state", "unknown", "--failed", "never charged"}
	for _, args := range [][]string{
		append([]string{"requests", "delete"}, first...),
		append([]string{"requests", "resolve", "--not-done", "--reason", "the bank has nothing of it"}, second...),
		append([]string{"requests", "resolve", "--done", "testdata/result.json"}, third...),
		{"jobs", "forget", "invoices"}, {"jobs", "forget", "reports", "--reason", "it is in the warehouse now"},
	} {
		r := f.Run(append(args, "-N", "test", "--yes")...)
		require.Zero(t, r.Code, "%v: %s", args, r.Err)
		require.NotContains(t, r.Err, "list of changes")
	}
	fourth, fifth := of("4"), of("5")
	require.Zero(t, f.Run(append(many, "-N", "test", "--yes")...).Code)
	require.NotZero(t, f.Run(append(many, "-N", "test", "--yes")...).Code, "nothing is left, and nothing is recorded")
	require.NotZero(t, f.Run("jobs", "forget", "invoices", "-N", "test", "--yes").Code)

	var got []string
	for _, c := range changes(f) {
		require.Empty(t, c.Failed)
		got = append(got, fmt.Sprintf("%s %s %s: %s > %s: %s", c.Verb, c.Name, c.Target, c.Before, c.After, c.Reason))
	}
	refs := []string{fourth[1], fifth[1]}
	slices.Sort(refs)
	require.Equal(t, []string{
		"delete requests/orders " + first[1] + ": unknown > : ", "resolve requests/orders " + second[1] + ": unknown > not-done: the bank has nothing of it",
		"resolve requests/orders " + third[1] + ": unknown > done: ", "forget job/invoices :  > : ", "forget job/reports :  > : it is in the warehouse now",
		"resolve requests/orders 2 targets: " + strings.Join(refs, ", ") + ": unknown > failed: ",
	}, got)
}
