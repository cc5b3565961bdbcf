package virtual

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// Every call of a store returns when its ctx ends, or before, while etcd does not answer.
func TestStoreCallsEndWithCtx(t *testing.T) {
	for how, away := range aways {
		for name, call := range map[string]func(context.Context, *idempotency.Store, *idempotency.Attempt) error{
			"Begin": func(ctx context.Context, s *idempotency.Store, _ *idempotency.Attempt) error {
				_, _, err := s.Begin(ctx, order("2"), nil)
				return err
			},
			"Commit": func(ctx context.Context, _ *idempotency.Store, at *idempotency.Attempt) error {
				return at.Commit(ctx, nil)
			},
			"Get": func(ctx context.Context, s *idempotency.Store, _ *idempotency.Attempt) error {
				_, _, err := s.Get(ctx, s.Ref(order("1")))
				return err
			},
			"Delete": func(ctx context.Context, s *idempotency.Store, _ *idempotency.Attempt) error {
				return s.Delete(ctx, s.Ref(order("1")))
			},
			"Count": func(ctx context.Context, s *idempotency.Store, _ *idempotency.Attempt) error {
				_, err := s.Count(ctx)
				return err
			},
			"List": func(ctx context.Context, s *idempotency.Store, _ *idempotency.Attempt) error {
				for _, err := range s.List(ctx, idempotency.Filter{}) {
					return err
				}
				return nil
			},
		} {
			for _, bound := range []time.Duration{50 * time.Millisecond, 4 * time.Second} {
				t.Run(fmt.Sprint(name, ", etcd ", how, ", for ", bound), func(t *testing.T) {
					bubble(t, 1, func(t *testing.T, on []*desk) {
						s := on[0].storeOf(idempotency.Options{})
						at := started(t, s, order("1"))
						away(on[0].client)
						begun := time.Now()
						require.Error(t, call(within(t, bound), s, at))
						require.LessOrEqual(t, time.Since(begun), bound)
						if how == "swallows" {
							require.Equal(t, bound, time.Since(begun))
						}
					})
				})
			}
		}
	}
}

// MaxExecution ends the context. A function that returns then counts as interrupted; one that does not
// is left as lost a margin later, and what it commits after that counts if no attempt has taken over.
func TestMaxExecution(t *testing.T) {
	const most = 10 * time.Minute
	bubble(t, 2, func(t *testing.T, on []*desk) {
		a, b := on[0].storeOf(idempotency.Options{MaxExecution: most}), on[1].storeOf(idempotency.Options{CacheBytes: -1})
		begun := time.Now()
		_, err := idempotency.Do(t.Context(), a, order("1"), "payload", func(ctx context.Context, at *idempotency.Attempt) (int, error) {
			<-ctx.Done()
			require.Equal(t, most, time.Since(begun))
			require.ErrorIs(t, at.Err(), idempotency.ErrTooLong)
			return 0, context.Cause(ctx)
		}, idempotency.OnLost(idempotency.Refuse))
		require.ErrorIs(t, err, idempotency.ErrTooLong)
		require.Equal(t, most, time.Since(begun))
		_, _, err = b.Begin(t.Context(), order("1"), "payload")
		require.ErrorIs(t, err, idempotency.ErrUnknown)

		begun = time.Now()
		at := started(t, a, order("2"))
		_, _, err = b.Begin(t.Context(), order("2"), "payload", idempotency.OnLost(idempotency.Refuse)) // waits
		require.ErrorIs(t, err, idempotency.ErrUnknown)
		require.Equal(t, most+margin, time.Since(begun))
		require.NoError(t, at.Commit(t.Context(), []byte("late")))
		require.Equal(t, "late", replay(t, b, order("2")))

		begun = time.Now()
		at = started(t, a, order("3"))
		next := started(t, b, order("3")) // waits
		require.Equal(t, most+margin, time.Since(begun))
		require.Equal(t, 2, next.Attempt())
		require.ErrorIs(t, at.Commit(t.Context(), []byte("late")), idempotency.ErrFenced)
		require.NoError(t, next.Commit(t.Context(), []byte("x")))
		require.Equal(t, "x", replay(t, a, order("3")))
	})
}

// A178: MaxExecution has passed, and a Commit is under way when the attempt is to be given up. A condition of Attach is not
// met, so the attempt is not settled: it is given up then, and does not stay in progress as long as its session lives.
func TestGivenUpBehindACommit(t *testing.T) {
	bubble(t, 2, func(t *testing.T, on []*desk) {
		a, b := on[0].store(), on[1].store()
		at := started(t, a, order("1"), idempotency.MaxExecution(time.Minute))
		at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(root+"none"), "!=", 0)})
		<-at.Context().Done()
		on[0].slow("Txn", 1, etcdfake.Fault{ResponseDelay: margin + time.Second})
		require.ErrorIs(t, at.Commit(t.Context(), nil), idempotency.ErrConflict)
		time.Sleep(time.Second)
		next := started(t, b, order("1"), idempotency.Wait(0))
		require.Equal(t, 2, next.Attempt())
		require.ErrorIs(t, at.Commit(t.Context(), nil), idempotency.ErrFenced)
		require.NoError(t, next.Commit(t.Context(), nil))
	})
}

// A recovery point that is not answered ends with MaxExecution. Whether it arrives before the outcome or
// after it, it neither fences its own attempt nor counts.
func TestStepsThatAreNotAnswered(t *testing.T) {
	const most, late = 3 * time.Second, time.Minute
	for name, fate := range map[string]etcdfake.Fault{
		"answer held": {ResponseDelay: late}, "request held": {RequestDelay: late}, "answer lost": {DropResponse: true}, "request lost": {DropRequest: true, DropResponse: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				a, b := on[0].storeOf(idempotency.Options{MaxExecution: most}), on[1].storeOf(idempotency.Options{CacheBytes: -1})
				at := started(t, a, order("1"))
				begun := time.Now()
				on[0].slow("Txn", 1, fate)
				_, err := idempotency.Step(at, "one", func(context.Context) (int, error) { return 1, nil })
				require.ErrorIs(t, err, idempotency.ErrTooLong)
				require.Equal(t, most, time.Since(begun))
				require.NoError(t, at.Commit(t.Context(), []byte("x")))
				for range 2 {
					require.Equal(t, "x", replay(t, b, order("1")))
					time.Sleep(late)
				}
			})
		})
	}
}

// A read by one member counts only if a majority has answered within a third of the TTL.
func TestSerializableOnlyIfFresh(t *testing.T) {
	bubble(t, 1, func(t *testing.T, on []*desk) {
		s := on[0].storeOf(idempotency.Options{CacheBytes: -1})
		require.NoError(t, started(t, s, order("1")).Commit(t.Context(), []byte("x")))
		var majority bool // the last read asked for it
		on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if r, ok := m.Body.(*etcdserverpb.RangeRequest); ok && strings.Contains(string(r.Key), "/idempotency/") {
				majority = !r.Serializable
			}
			return etcdfake.Fault{}
		})
		time.Sleep(ttl)
		const every = 100 * time.Millisecond
		for range 3 {
			asked := time.Now()
			require.Equal(t, "x", replay(t, s, order("1")))
			require.True(t, majority, "a third of the TTL has passed")
			for time.Sleep(every); time.Since(asked) < ttl/3; time.Sleep(every) {
				require.Equal(t, "x", replay(t, s, order("1")))
				require.False(t, majority, time.Since(asked))
			}
		}
	})
}

// N5: what a function returns, and why its attempt has ended, is printed once by the error of Do, also
// if etcd is away at the end.
func TestErrorsOfAnAttemptThatIsAway(t *testing.T) {
	own := errors.New("the function's own")
	for how, away := range aways {
		for what, result := range map[string]func(context.Context) error{
			"the cause":         context.Cause,
			"the cause wrapped": func(ctx context.Context) error { return fmt.Errorf("step 2: %w", context.Cause(ctx)) },
			"its own":           func(context.Context) error { return own },
			"nothing":           func(context.Context) error { return nil },
		} {
			for _, action := range []idempotency.Action{idempotency.Forget, idempotency.Remember, idempotency.Abandon} {
				t.Run(fmt.Sprint("etcd ", how, ", ", what, ", ", action), func(t *testing.T) {
					bubble(t, 1, func(t *testing.T, on []*desk) {
						var ended time.Time
						_, err := idempotency.Do(t.Context(), on[0].storeOf(idempotency.Options{MaxExecution: time.Second}), order("1"), nil, func(ctx context.Context, _ *idempotency.Attempt) (int, error) {
							away(on[0].client)
							<-ctx.Done()
							ended = time.Now()
							return 1, result(ctx)
						}, idempotency.OnError(func(error) idempotency.Action { return action }))
						require.ErrorIs(t, err, idempotency.ErrTooLong)
						require.ErrorIs(t, err, idempotency.ErrNotRecorded)
						require.LessOrEqual(t, time.Since(ended), commit.CallTimeout)
						testkit.PrintedOnce(t, err)
						for _, once := range []string{own.Error(), "MaxExecution of"} {
							require.LessOrEqual(t, strings.Count(err.Error(), once), 1, "%q", err)
						}
					})
				})
			}
		}
	}
}
