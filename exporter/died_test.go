package exporter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A406: no metric and no alert said that a process had died. One whose lease ends with a permit, a run or an attempt has died, or was
// cut off. One that closes its session has not, also if it keeps permits.
func TestProcessDied(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	watcher, _ := f.Session(idle())
	e := f.export(watcher, nil)
	for owner, begin := range map[string]func(s *concurrency.Session){
		"with-a-permit": func(s *concurrency.Session) {
			sem, err := concurrency.NewSemaphore(s, "charge", 2, nil)
			require.NoError(t, err)
			acquire(t, ctx, sem)
		},
		"with-a-run": func(s *concurrency.Session) {
			l, err := schedlock.New(s, nil)
			require.NoError(t, err)
			started := make(chan struct{})
			go func() {
				_, _ = l.Do(ctx, "nightly", func(ctx context.Context, _ *schedlock.Run) error { close(started); <-ctx.Done(); return nil })
			}()
			closed(t, started, "the run starts")
		},
		"with-an-attempt": func(s *concurrency.Session) {
			st, err := idempotency.NewStore(s, "orders", nil)
			require.NoError(t, err)
			_, _, err = st.Begin(ctx, idempotency.Key{Scope: "shop", Op: "pay", ID: "1"}, "x")
			require.NoError(t, err)
		},
	} {
		s, c := f.Session(&concurrency.SessionOptions{TTL: 300 * time.Second, Owner: owner})
		begin(s)
		e.reaches(f)
		at := time.Now().Unix()
		f.crash(s, c)
		died := fmt.Sprintf("process_died_timestamp_seconds{owner=%q}", owner)
		require.Eventually(t, func() bool { return e.series()[died] >= float64(at) }, soon, look, owner)
	}
	for n := range 20 {
		s, _ := f.Session(&concurrency.SessionOptions{TTL: 300 * time.Second, Owner: fmt.Sprint("closed-", n)})
		kept, err := concurrency.NewSemaphore(s, "kept", 100, &concurrency.SemaphoreOptions{Keep: time.Hour})
		require.NoError(t, err)
		require.NoError(t, kept.Do(ctx, func(context.Context, *concurrency.Permit) error { return nil }))
		e.reaches(f)
		require.NoError(t, s.Close(ctx))
	}
	for name := range e.reaches(f) {
		require.False(t, strings.Contains(name, "closed-"), name)
	}
}
