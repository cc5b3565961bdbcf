package virtual

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A743: the loss of a leader's term ends an attempt within Lead, also once the context of Lead's function has ended for another
// reason. It worked on beside the next leader.
func TestAttemptUnderALostTerm(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(t *testing.T, d *desk, other *concurrency.Election, stop func()){
		"lost": func(*testing.T, *desk, *concurrency.Election, func()) {},
		"asked to step down": func(t *testing.T, _ *desk, other *concurrency.Election, _ func()) {
			_, err := other.StepDown(t.Context(), "deploy")
			require.NoError(t, err)
		},
		"its ctx has ended": func(_ *testing.T, _ *desk, _ *concurrency.Election, stop func()) { stop() },
		"its session closes": func(t *testing.T, d *desk, _ *concurrency.Election, _ func()) {
			go func() { _ = d.session.Close(within(t, time.Minute)) }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, on []*desk) {
				store, other := on[1].storeOf(idempotency.Options{}), electionOf(on[1])
				began, cause := make(chan int64, 1), make(chan error, 1)
				ctx, stop := context.WithCancel(context.Background())
				defer stop()
				go func() {
					_ = electionOf(on[0]).Lead(ctx, func(ctx context.Context, term *concurrency.Permit) error {
						_, err := idempotency.Do(ctx, store, order("1"), "payload", func(work context.Context, _ *idempotency.Attempt) (int, error) {
							began <- term.Token()
							select {
							case <-work.Done():
							case <-time.After(time.Minute):
							}
							cause <- context.Cause(work)
							return 1, nil
						})
						stop()
						return err
					})
				}()
				token := <-began
				first(t, on[0], other, stop)
				time.Sleep(time.Second)
				synctest.Wait()
				require.Empty(t, cause, "the term is not lost yet")
				begun := time.Now()
				require.NoError(t, other.EvictToken(t.Context(), token, "stuck"))
				var lost *concurrency.LostError
				require.ErrorAs(t, <-cause, &lost)
				require.ErrorIs(t, lost, concurrency.ErrEvicted)
				require.Equal(t, token, lost.Token)
				require.Less(t, time.Since(begun), time.Second)
			})
		})
	}
}

// A743: a leader that campaigns again within its own term is warned of as any call that waits for itself.
func TestLeaderWaitsForItself(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		el := electionOf(on[0])
		err := el.Lead(t.Context(), func(ctx context.Context, term *concurrency.Permit) error {
			_, err := el.Campaign(ctx, concurrency.Wait(time.Second))
			require.ErrorContains(t, err, "its own context holds token")
			require.NoError(t, term.Err())
			return nil
		})
		require.NoError(t, err)
	})
}

// A742: Close asks leaders to resign at once, so a campaign within work in progress ends as any other does.
func TestCampaignIsNoPart(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		bubble(t, 2, func(t *testing.T, on []*desk) {
			d := on[0]
			_, err := electionOf(on[1]).Campaign(t.Context())
			require.NoError(t, err)
			began, closing, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			led, parted := make(chan error, 1), make(chan error, 1)
			el, part := electionOf(d), had(d.named(3, 5))
			go func() {
				done <- worksOf["a permit"](d, func(ctx context.Context) error {
					close(began)
					if !waits {
						<-closing
					}
					led <- el.Lead(ctx, func(context.Context, *concurrency.Permit) error { return nil })
					parted <- part(ctx)
					return nil
				})
			}()
			<-began
			time.Sleep(time.Second)
			closed := make(chan error, 1)
			go func() { closed <- d.session.Close(within(t, time.Minute)) }()
			synctest.Wait()
			close(closing)
			require.ErrorIs(t, <-led, concurrency.ErrClosed, "the campaign")
			require.NoError(t, <-parted, "a permit of the same work")
			require.NoError(t, <-done)
			require.NoError(t, <-closed)
		})
	}
}
