package schedlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/schedlock"
)

// A201: a later release has stored the settings of a job with a field that this one does not know. They are the same
// settings: the job starts, with one Txn per tick once they were read.
func TestSettingsWithAFieldOfALaterRelease(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	tick := time.Now().Truncate(time.Minute).Add(-time.Hour)
	run := func(i instance, n int) {
		t.Helper()
		res, err := i.Do(ctxT(t), "j", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(tick.Add(time.Duration(n)*time.Minute)))
		require.NoError(t, err)
		require.Equal(t, schedlock.Ran, res.Outcome)
	}
	run(a, 0)
	name := f.Keys("/settings")[0]
	later := strings.TrimSuffix(f.Values("/settings")[name], "}") + `,"later":7}`
	_, err := f.Client().Put(ctxT(t), name, later, clientv3.WithLease(a.sess.Lease()))
	require.NoError(t, err)
	for n := 1; n <= 3; n++ {
		run(b, n)
	}
	run(a, 4)
	require.Equal(t, later, f.Values("/settings")[name])
	sent := b.client.Requests()["Txn"]
	run(b, 5)
	require.LessOrEqual(t, b.client.Requests()["Txn"]-sent, 2, "a claim, and its end")
	_, err = b.Do(ctxT(t), "j", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(tick.Add(6*time.Minute)), schedlock.Retries(3))
	require.Error(t, err)
}
