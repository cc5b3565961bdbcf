package virtual

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A633: a permit that is never released, a run that does not return and an attempt keep Close. One warning names them before its
// deadline, and so does its error: Close waited in silence, and its error named nothing.
func TestCloseNamesWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		core, logs := observer.New(zap.WarnLevel)
		d.open(concurrency.SessionOptions{Logger: zap.New(core)})
		released := d.get(d.semaphore(2))
		p := d.get(d.semaphore(2), concurrency.Note("import 12"))
		require.NotZero(t, p.Token())
		started, ran := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ran)
			_, _ = d.locker().Do(t.Context(), "nightly", func(ctx context.Context, _ *schedlock.Run) error {
				close(started)
				<-ctx.Done()
				return nil
			}, fireTime(1))
		}()
		<-started
		_, _, err := d.storeOf(idempotency.Options{}).Begin(t.Context(), idempotency.Key{Scope: "tenant", Op: "pay", ID: "1"}, nil)
		require.NoError(t, err)
		_, err = d.locker().Do(t.Context(), "done", func(context.Context, *schedlock.Run) error { return nil }, fireTime(1))
		require.NoError(t, err)
		require.NoError(t, released.Release(t.Context()))

		closed := make(chan error, 1)
		go func() { closed <- d.session.Close(within(t, 2*time.Minute)) }()
		said := func() []observer.LoggedEntry { return logs.FilterMessage("Close waits for what is still held").All() }
		time.Sleep(9 * time.Second)
		require.Empty(t, said())
		time.Sleep(2 * time.Second)
		require.Len(t, said(), 1)
		text := said()[0].ContextMap()["held"]
		for _, part := range []string{"3 permits, runs or attempts", `semaphore "` + queue + `", token `, `note "import 12"`, `job "nightly", for 1`, "attempts of requests: 1"} {
			require.Contains(t, text, part)
		}
		err = <-closed
		require.Len(t, said(), 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `3 permits, runs or attempts (semaphore "`+queue+`", token `)
		require.ErrorContains(t, err, `note "import 12"; job "nightly", for 2m`)
		<-ran
	})
}
