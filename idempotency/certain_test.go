package idempotency_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A process is stopped beyond its lease's deadline while its outcome is not in etcd, and
// another attempt has another one. What it reports when it continues, before any of its
// timers has fired, is not final, and its error says why: whether it was stopped before it settled the
// attempt, while it did, or just after.
func TestPausedBeforeItsEnd(t *testing.T) {
	t.Parallel()
	const (
		never, before, meanwhile, after = "never", "before", "meanwhile", "after"
	)
	broken := errors.New("broken")
	for _, when := range []string{never, before, meanwhile, after} {
		for what, settle := range map[string]func(ctx context.Context, at *idempotency.Attempt) error{
			"commit":  func(ctx context.Context, at *idempotency.Attempt) error { return at.Commit(ctx, []byte("x")) },
			"fail":    func(ctx context.Context, at *idempotency.Attempt) error { return at.Fail(ctx, "x", nil) },
			"release": func(ctx context.Context, at *idempotency.Attempt) error { return at.Release(ctx) },
			"abandon": func(ctx context.Context, at *idempotency.Attempt) error { return at.Abandon(ctx) },
		} {
			t.Run(what+", paused "+when, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				a := f.instance(nil, nil)
				at := begin(t, a, key("1"))
				pause := idempotency.Pausable(at)
				ctx, cancel := context.WithCancel(ctxT(t))
				defer cancel()
				inj := a.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.FailWith, Times: -1, Match: func(string, any) bool {
					if when == meanwhile {
						pause()
					}
					cancel()
					return true
				}})
				defer inj.Remove()
				if when == before {
					pause()
				}
				err := settle(ctx, at)
				require.ErrorIs(t, err, idempotency.ErrNotRecorded)
				// What gives the request up ends the attempt's context itself, before etcd is asked.
				lost := when == before || when == meanwhile && (what == "commit" || what == "fail")
				require.Equal(t, lost, errors.Is(err, idempotency.ErrLost), err)
				if when == after {
					require.True(t, at.Certain(err))
					pause()
				}
				require.Equal(t, when == never, at.Certain(err))
			})
		}
	}
	for _, paused := range []bool{true, false} {
		for _, what := range []idempotency.Action{idempotency.Forget, idempotency.Remember, idempotency.Abandon} {
			f := shared(t)
			a := f.instance(nil, nil)
			at := begin(t, a, key("1"), idempotency.OnError(func(error) idempotency.Action { return what }))
			pause := idempotency.Pausable(at)
			err := at.Run(ctxT(t), func(context.Context) ([]byte, error) {
				if paused {
					pause()
				}
				return nil, broken
			})
			require.ErrorIs(t, err, broken)
			require.Equal(t, paused, errors.Is(err, idempotency.ErrLost), err)
			require.Equal(t, !paused, at.Certain(err))
		}
	}
}

// TestCertainAfterALostPermit: the permit of an attempt is lost, and the attempt is abandoned: another one may have another
// outcome, so that of this one is not final (A372 in internal/proof/tested-failures.md), whether etcd has recorded it or not.
func TestCertainAfterALostPermit(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, lost := range map[string]bool{"lost": true, "held": false} {
		for _, onError := range []idempotency.Action{idempotency.Remember, idempotency.Abandon} {
			f := shared(t)
			in := f.instance(nil, nil)
			sem, err := concurrency.NewSemaphore(in.sess, "workers", 1, nil)
			require.NoError(t, err)
			at := begin(t, in, key("1"), idempotency.OnError(func(error) idempotency.Action { return onError }))
			p, err := sem.Acquire(ctxT(t))
			require.NoError(t, err)
			err = at.Run(p.Context(), func(ctx context.Context) ([]byte, error) {
				if lost {
					require.NoError(t, sem.EvictToken(ctxT(t), p.Token(), "test"))
					closed(t, ctx.Done(), "the function's context ends")
				}
				return nil, broken
			})
			require.ErrorIs(t, err, broken)
			require.Equal(t, lost, errors.Is(err, concurrency.ErrEvicted), err)
			require.Equal(t, !lost, at.Certain(err), name)
		}
	}
}
