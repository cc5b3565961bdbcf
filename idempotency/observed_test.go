package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/observe"
)

// panics is a payload whose method does.
type panics struct{ A int }

func (panics) MarshalJSON() ([]byte, error) { panic("of the payload") }

// H1 to H3: the hooks see each outcome of each call and attempt once, and each begun call ends.
func TestHooksSeeEachOutcome(t *testing.T) {
	t.Parallel()
	type two struct {
		fixture
		*testkit.Recorder
		in, other instance
	}
	own := errors.New("the function's own")
	work := func(context.Context, *idempotency.Attempt) (string, error) { return "result", nil }
	for name, tt := range map[string]struct {
		opts  *concurrency.SessionOptions
		store *idempotency.Options
		do    func(t *testing.T, s two, ctx context.Context)
		want  []string
	}{
		"a payload that panics": {
			do: func(t *testing.T, s two, ctx context.Context) {
				require.PanicsWithValue(t, "of the payload", func() { _, _, _ = s.in.Begin(ctx, key("k"), panics{1}) })
			},
			want: []string{"begin: error (panic)"},
		},
		"done, and replayed": {
			do: func(t *testing.T, s two, ctx context.Context) {
				for range 2 {
					_, err := idempotency.Do(ctx, s.in.Store, key("k"), "payload", work)
					require.NoError(t, err)
				}
			},
			want: []string{"begin: granted", "record: done", "execute: done", "begin: replayed"},
		},
		"failed, and released for the payload": {
			do: func(t *testing.T, s two, ctx context.Context) {
				_, err := idempotency.Do(ctx, s.in.Store, key("k"), "payload", func(context.Context, *idempotency.Attempt) (string, error) { return "", own })
				require.ErrorIs(t, err, own)
			},
			want: []string{"begin: granted", "record: done", "execute: failed"},
		},
		"failed for good": {
			do: func(t *testing.T, s two, ctx context.Context) {
				require.NoError(t, begin(t, s.in, key("k")).Fail(ctx, "no", nil))
			},
			want: []string{"begin: granted", "record: done", "execute: failed"},
		},
		"released": {
			do: func(t *testing.T, s two, ctx context.Context) {
				require.NoError(t, begin(t, s.in, key("k")).Release(ctx))
			},
			want: []string{"begin: granted", "record: done", "execute: released"},
		},
		"abandoned": {
			do: func(t *testing.T, s two, ctx context.Context) {
				require.NoError(t, begin(t, s.in, key("k")).Abandon(ctx))
			},
			want: []string{"begin: granted", "record: done", "execute: abandoned"},
		},
		"panic": {
			do: func(t *testing.T, s two, ctx context.Context) {
				require.Panics(t, func() {
					_, _ = idempotency.Do(ctx, s.in.Store, key("k"), "payload", func(context.Context, *idempotency.Attempt) (string, error) { panic("of a test") })
				})
			},
			want: []string{"begin: granted", "record: done", "execute: abandoned"},
		},
		"settled twice": {
			do: func(t *testing.T, s two, ctx context.Context) {
				a := begin(t, s.in, key("k"))
				require.NoError(t, a.Commit(ctx, nil))
				require.ErrorIs(t, a.Commit(ctx, nil), idempotency.ErrSettled)
			},
			want: []string{"begin: granted", "record: done", "execute: done", "record: refused (settled)"},
		},
		"conflict": {
			do: func(t *testing.T, s two, ctx context.Context) {
				a := begin(t, s.in, key("k"))
				a.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("nothing here"), ">", 0)})
				require.ErrorIs(t, a.Commit(ctx, nil), idempotency.ErrConflict)
				require.NoError(t, a.Commit(ctx, nil))
			},
			want: []string{"begin: granted", "record: refused (conflict)", "record: done", "execute: done"},
		},
		"refused: in progress": {
			do: func(t *testing.T, s two, ctx context.Context) {
				begin(t, s.other, key("k"))
				rejected(t, s.in, key("k"))
			},
			want: []string{"begin: refused (in_progress)"},
		},
		"refused: mismatch": {
			do: func(t *testing.T, s two, ctx context.Context) {
				require.NoError(t, begin(t, s.other, key("k")).Commit(ctx, nil))
				_, _, err := s.in.Begin(ctx, key("k"), "another payload")
				require.ErrorIs(t, err, idempotency.ErrMismatch)
			},
			want: []string{"begin: refused (mismatch)"},
		},
		"refused: unknown": {
			store: &idempotency.Options{OnLost: idempotency.Refuse},
			do: func(t *testing.T, s two, ctx context.Context) {
				require.NoError(t, begin(t, s.other, key("k")).Abandon(ctx))
				_, _, err := s.in.Begin(ctx, key("k"), "payload")
				require.ErrorIs(t, err, idempotency.ErrUnknown)
			},
			want: []string{"begin: refused (unknown)"},
		},
		"refused: too many": {
			store: &idempotency.Options{MaxPerScope: 1},
			do: func(t *testing.T, s two, ctx context.Context) {
				require.NoError(t, begin(t, s.other, key("k")).Commit(ctx, nil))
				require.Eventually(t, func() bool {
					a, _, err := s.in.Begin(ctx, key("l"), "payload")
					if a != nil {
						require.NoError(t, a.Release(ctx))
					}
					return errors.Is(err, idempotency.ErrScopeFull)
				}, soon, 5*time.Millisecond)
				said := s.Said("store")
				require.Equal(t, "begin: refused (too_many)", said[len(said)-1].Text)
			},
		},
		"error: invalid": {
			do: func(t *testing.T, s two, ctx context.Context) {
				_, _, err := s.in.Begin(ctx, idempotency.Key{}, "payload")
				require.ErrorIs(t, err, idempotency.ErrInvalid)
			},
			want: []string{"begin: error (invalid)"},
		},
		"error: closed": {
			do: func(t *testing.T, s two, ctx context.Context) {
				require.NoError(t, s.in.sess.Close(ctx))
				_, _, err := s.in.Begin(ctx, key("k"), "payload")
				require.ErrorIs(t, err, idempotency.ErrClosed)
			},
			want: []string{"begin: error (closed)"},
		},
		"gave up: canceled": {
			do: func(t *testing.T, s two, ctx context.Context) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				_, _, err := s.in.Begin(ctx, key("k"), "payload")
				require.ErrorIs(t, err, context.Canceled)
			},
			want: []string{"begin: gave_up (canceled)"},
		},
		"gave up: unavailable": {
			do: func(t *testing.T, s two, ctx context.Context) {
				require.NoError(t, begin(t, s.in, key("j")).Release(ctx))
				s.in.client.Cut()
				ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				_, _, err := s.in.Begin(ctx, key("k"), "payload")
				require.ErrorIs(t, err, concurrency.ErrUnavailable)
			},
			want: []string{"begin: granted", "record: done", "execute: released", "begin: gave_up (unavailable)"},
		},
		"lost: the session": {
			do: func(t *testing.T, s two, ctx context.Context) {
				a := begin(t, s.in, key("k"))
				require.NoError(t, s.RevokeLease(ctx, s.in.sess.Lease()))
				closed(t, a.Context().Done(), "the lease")
			},
			want: []string{"begin: granted", "execute: lost (session)"},
		},
		"lost: fenced": {
			do: func(t *testing.T, s two, ctx context.Context) {
				a := begin(t, s.in, key("k"))
				require.NoError(t, s.RevokeLease(ctx, s.in.sess.Lease()))
				closed(t, a.Context().Done(), "the lease")
				require.NoError(t, begin(t, s.other, key("k")).Commit(ctx, nil))
				require.ErrorIs(t, a.Commit(ctx, nil), idempotency.ErrFenced)
			},
			want: []string{"begin: granted", "execute: lost (session)", "record: lost (fenced)", "Overrun"},
		},
		"lost: too long": {
			do: func(t *testing.T, s two, ctx context.Context) {
				_, err := idempotency.Do(ctx, s.in.Store, key("k"), "payload", func(ctx context.Context, _ *idempotency.Attempt) (string, error) {
					<-ctx.Done()
					return "", context.Cause(ctx)
				}, idempotency.MaxExecution(50*time.Millisecond))
				require.ErrorIs(t, err, idempotency.ErrTooLong)
			},
			want: []string{"begin: granted", "execute: lost (too_long)", "record: done", "Overrun"},
		},
		"unconfirmed": {
			opts: brisk(),
			do: func(t *testing.T, s two, ctx context.Context) {
				a := begin(t, s.in, key("k"))
				s.in.client.Cut()
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				require.ErrorIs(t, a.Commit(ctx, nil), idempotency.ErrNotRecorded)
				s.Await(t, "store", "begin: granted", "record: unconfirmed")
				s.in.client.Heal()
			},
			want: []string{"begin: granted", "record: unconfirmed", "execute: done"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := two{fixture: shared(t), Recorder: &testkit.Recorder{}}
			opts := tt.opts
			if opts == nil {
				opts = &concurrency.SessionOptions{TTL: 300 * time.Second}
			}
			opts.Hooks = s.Hooks()
			s.in, s.other = s.instance(opts, tt.store), s.instance(nil, tt.store)
			tt.do(t, s, ctxT(t))
			if tt.want != nil {
				s.Await(t, "store", tt.want...)
			}
			s.Settled(t)
			for _, said := range s.Said("store") {
				if said.Outcome.Result == observe.Replayed || said.Text == "execute: done" {
					require.Equal(t, []any{observe.Store, "pay", "tenant", 1, true}, []any{said.Call.Kind, said.Call.Operation, said.Call.Scope, said.Outcome.Attempt, said.Outcome.Token > 0})
					require.NotContains(t, said.Call.Ref, "k/")
				}
			}
		})
	}
}

// H1, H2: the function has the values that the hooks have given its attempt, not those of its Begin,
// and does not end with the caller's context.
func TestContextsOfHooks(t *testing.T) {
	t.Parallel()
	type name struct{}
	in := shared(t).instance(&concurrency.SessionOptions{TTL: 300 * time.Second, Hooks: []observe.Hooks{{
		Start: func(ctx context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
			before, _ := ctx.Value(name{}).(string)
			return context.WithValue(ctx, name{}, before+"/"+string(c.Op)), nil
		},
	}}}, nil)
	ctx, cancel := context.WithCancel(context.WithValue(ctxT(t), name{}, "caller"))
	_, err := idempotency.Do(ctx, in.Store, key("k"), "payload", func(ctx context.Context, _ *idempotency.Attempt) (int, error) {
		cancel()
		require.Equal(t, "caller/execute", ctx.Value(name{}))
		return 0, ctx.Err()
	})
	require.NoError(t, err)
}
