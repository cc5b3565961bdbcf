package concurrency_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// A173: etcd ends the lease of a permit that is being released, and the session learns of that before etcd's
// answer to the release arrives. Release returns what the answer says: nil if it has removed the permit's
// key, ErrLost if that was gone, and only without an answer ErrUnconfirmed.
func TestAnswerBehindTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  embedtest.Action
		before bool // the lease is revoked when the request is sent, and not when it is held up
		silent bool // what is held up does not arrive
		want   error
	}{
		"the request is late":                 {fault: embedtest.HoldRequest, want: concurrency.ErrLost},
		"the response is late":                {fault: embedtest.HoldResponse, want: nil},
		"the request does not arrive":         {fault: embedtest.HoldRequest, silent: true, want: concurrency.ErrUnconfirmed},
		"the request is lost, and sent again": {fault: embedtest.FailWith, before: true, want: concurrency.ErrUnconfirmed},
	} {
		for total, of := range map[string]func(t *testing.T, s *concurrency.Session) *concurrency.Semaphore{
			"": func(t *testing.T, s *concurrency.Session) *concurrency.Semaphore { return sem(t, s, "x", 1) },
			" with a total": func(t *testing.T, s *concurrency.Session) *concurrency.Semaphore {
				return totaled(t, s, "x", 1, 1).Key("a")
			},
		} {
			t.Run(name+total, func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				ctx := ctxT(t)
				opts, reported := traced(idle())
				s, client := f.Session(opts)
				p := acquire(t, ctx, of(t, s))
				lease := s.Lease()
				var once sync.Once
				revoke := func() { once.Do(func() { assertNoError(t, f.RevokeLease(ctx, lease)) }) }
				fault := embedtest.Fault{Method: "Txn", Match: txn(false), Do: c.fault}
				if c.before {
					// Its watch does not say so: the repeated release finds it out.
					client.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1, Match: eventOn("/session/")})
					fault.Before = revoke
				}
				request := client.Inject(fault)
				result := make(chan error, 1)
				go func() { result <- p.Release(ctx) }()
				require.NoError(t, request.WaitHit(ctx))
				revoke()
				require.NoError(t, acquire(t, ctx, sem(t, s, "on the next lease", 1)).Release(ctx))
				if !c.silent {
					require.NoError(t, request.Release())
				}
				err := got(t, result, "Release returns")
				if c.want == nil {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, c.want)
					require.Regexp(t, "presence key was deleted or overwritten|lease is gone", err.Error(), "what found it out first: the first renewal may be under way")
				}
				require.Equal(t, err, p.Release(ctx), "every call returns the same")
				require.ErrorIs(t, p.Err(), concurrency.ErrReleased, "the holder's own Release came first")
				require.NoError(t, s.Close(ctx))
				if c.want == concurrency.ErrLost {
					require.Equal(t, err, error(got(t, reported.permit, "Trace.Lost")))
				}
			})
		}
	}
}

// A173: the caller of Release has gone, and the release continues in the background. It is the same there.
func TestAnswerInTheBackgroundBehindTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, client := f.Session(idle())
	p := acquire(t, ctx, sem(t, s, "x", 1))
	request := client.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Do: embedtest.HoldRequest})
	gone, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, p.Release(gone), concurrency.ErrUnconfirmed)
	require.NoError(t, request.WaitHit(ctx))
	require.NoError(t, f.RevokeLease(ctx, s.Lease()))
	require.NoError(t, acquire(t, ctx, sem(t, s, "on the next lease", 1)).Release(ctx))
	require.NoError(t, request.Release())
	require.ErrorIs(t, p.Release(ctx), concurrency.ErrLost)
	require.NoError(t, s.Close(ctx))
}
