package schedlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/cost"
	"github.com/etcdkit/etcdkit/schedlock"
)

// What jobs cost etcd: the table of docs/storage.md, row by row.
func TestLoadBudget(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	quiet := &concurrency.SessionOptions{TTL: 300 * time.Second} // no renewal and no refresh while we count
	b := cost.New(ctx, t, f.Cluster)
	first, second := f.instance(quiet, nil), f.instance(quiet, nil)
	c := first.client
	b.Started(c, second.client)
	require.Eventually(t, func() bool { return len(first.Clocks()) == 1 && len(second.Clocks()) == 1 }, soon, 20*time.Millisecond)
	n := 0
	at := func() schedlock.CallOption { n++; return schedlock.Tick(tick(n)) }
	do := func(in instance, want schedlock.Outcome, opts ...schedlock.CallOption) func() {
		return func() {
			t.Helper()
			res, err := in.Do(ctx, "job", nothing, opts...)
			require.NoError(t, err)
			require.Equal(t, want, res.Outcome)
		}
	}
	type load = cost.Load
	b.Count("the first run of a job that no live process has run", c, load{"Txn": 5}, 3, 2, do(first, schedlock.Ran, at()))
	const run = "a run of a tick, start and end, however many processes there are"
	b.Count(run, c, load{"Txn": 2}, 2, 2, do(first, schedlock.Ran, at()))
	b.Count("the first run that a process makes of a job that has run: it looks for lost runs", second.client, load{"Txn": 3}, 2, 2, do(second, schedlock.Ran, at()))
	b.Count(run, second.client, load{"Txn": 2}, 2, 2, do(second, schedlock.Ran, at()))
	require.Eventually(t, func() bool {
		c.ResetRequests()
		do(first, schedlock.Claimed, schedlock.Tick(tick(n)))()
		return len(c.Requests()) == 0
	}, soon, 20*time.Millisecond, "word has come")
	b.Count("a call for a tick whose claim this process has seen", c, load{}, 0, 0, do(first, schedlock.Claimed, schedlock.Tick(tick(n))))
	late := f.instance(quiet, nil)
	require.Eventually(t, func() bool { // it has read what there is, and its own time is put, which is an entry, too
		return len(late.Clocks()) == 2 && late.client.Requests()["Range"] >= 2 && len(first.Clocks()) == 2
	}, soon, 20*time.Millisecond)
	b.Started(late.client)
	b.Count("a call that has not seen the claim, or is refused for another reason", late.client, load{"Txn": 3}, 1, 0, do(late, schedlock.Claimed, schedlock.Tick(tick(n))))
	require.NoError(t, late.sess.Close(ctx))
	end := make(chan struct{})
	runs := make(chan *schedlock.Run, 1)
	done := make(chan error, 1)
	go func() {
		_, err := second.Do(ctx, "job", func(_ context.Context, r *schedlock.Run) error { runs <- r; <-end; return nil }, at())
		done <- err
	}()
	r := got(t, runs, "it starts")
	b.Count("`Run.Check`", second.client, load{"Range": 1}, 0, 0, func() { require.NoError(t, r.Check(ctx)) })
	close(end)
	require.NoError(t, got(t, done, "it ends"))
	b.Count("`Pause`, `Resume`", c, load{"Txn": 2}, 1, 1, func() { require.NoError(t, first.Pause(ctx, "job", "")) })
	b.Count("`Pause`, `Resume`", c, load{"Txn": 2}, 1, 1, func() { require.NoError(t, first.Resume(ctx, "job")) })
	b.Count("`Jobs`, for each thousand keys", c, load{"Range": 1}, 0, 0, func() { _, err := first.Jobs(ctx); require.NoError(t, err) })
	const read = "`Status`, `Get`, `History`"
	b.Count(read, c, load{"Txn": 1}, 0, 0, func() { _, err := first.Status(ctx, "job"); require.NoError(t, err) })
	b.Count(read, c, load{"Txn": 1}, 0, 0, func() { _, err := first.Get(ctx, "job", tick(1)); require.NoError(t, err) })
	b.Count(read, c, load{"Txn": 1}, 0, 0, func() { _, err := first.History(ctx, "job"); require.NoError(t, err) })
	least := func(in instance) func() {
		return func() {
			_, err := in.Do(ctx, "held", nothing, at(), schedlock.AtLeast(time.Millisecond))
			require.NoError(t, err)
			f.NoKeys("/cooldown")
		}
	}
	least(first)()
	b.Count("a run with `AtLeast`: its lease, too", c, load{"LeaseGrant": 1, "Txn": 2, "LeaseRevoke": 1}, 4, 3, least(first))
	b.CheckDoc("../docs/storage.md", "### Jobs")
}
