package concurrency_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// A14: others end a permit while Release is under way. Whatever becomes of Release's own
// request, its result is what the notice says: nil after ReleaseID, and who evicted the
// permit and why after Evict. The permit ends once for Trace, too.
func TestReleaseIsEndedByANotice(t *testing.T) {
	t.Parallel()
	// Each starts with Release's first request under way, which has not reached etcd, and
	// with the notice taken by the holder's session.
	for name, goesOn := range map[string]func(f fixture, s *concurrency.Session, request *embedtest.Injection, giveUp func()){
		"the request arrives": func(f fixture, _ *concurrency.Session, r *embedtest.Injection, _ func()) {
			require.NoError(f.T, r.Release())
		},
		"the answer is lost": func(fixture, *concurrency.Session, *embedtest.Injection, func()) {},
		"ctx ends":           func(_ fixture, _ *concurrency.Session, _ *embedtest.Injection, giveUp func()) { giveUp() },
		"the lease is revoked": func(f fixture, s *concurrency.Session, _ *embedtest.Injection, _ func()) {
			require.NoError(f.T, f.RevokeLease(ctxT(f.T), s.Lease()))
		},
	} {
		for _, evicted := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "/ReleaseID", true: "/Evict"}[evicted], func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				ctx := ctxT(t)
				opts, reported := traced(idle())
				s, c := f.Session(opts)
				other, _ := f.Session(&concurrency.SessionOptions{Owner: "operator"})
				p := acquire(t, ctx, sem(t, s, "x", 1), concurrency.ID("i"))
				end := func() {
					control := sem(t, other, "x", 1)
					if evicted {
						assertNoError(t, control.Evict(ctx, "i", "enough"))
					} else {
						assertNoError(t, control.ReleaseID(ctx, "i"))
					}
					f.NoKeys("/notice/") // its session has taken it
				}
				fault := embedtest.Fault{Method: "Txn", Match: txn(false), Do: embedtest.HoldRequest}
				var before sync.Once
				if name == "the answer is lost" {
					// That it was not carried out either is what Release cannot know.
					fault.Do, fault.Match = embedtest.FailWith, func(method string, msg any) bool {
						if !txn(false)(method, msg) {
							return false
						}
						before.Do(end)
						return true
					}
				}
				request := c.Inject(fault)
				short, giveUp := context.WithCancel(ctx)
				defer giveUp()
				result := make(chan error, 1)
				go func() { result <- p.Release(short) }()
				require.NoError(t, request.WaitHit(ctx))
				if fault.Do == embedtest.HoldRequest {
					end()
				}
				goesOn(f, s, request, giveUp)
				err := got(t, result, "Release returns")
				require.NoError(t, request.Release())
				if !evicted {
					require.NoError(t, err)
					require.ErrorIs(t, got(t, reported.permit, "Trace.Lost"), concurrency.ErrReleased)
				} else {
					require.ErrorIs(t, err, concurrency.ErrEvicted)
					require.ErrorIs(t, err, concurrency.ErrLost)
					require.ErrorContains(t, err, "by operator: enough")
					require.Equal(t, err, error(got(t, reported.permit, "Trace.Lost")))
				}
				require.Equal(t, err, p.Release(ctx), "every call returns the same")
				require.ErrorIs(t, p.Err(), concurrency.ErrReleased, "the holder's own Release came first")
				require.NotErrorIs(t, p.Err(), concurrency.ErrLost)
				require.NoError(t, s.Close(ctx))
				require.Empty(t, reported.permit, "it ends once")
			})
		}
	}
}

// A14: etcd has answered that the key is gone, the watch has not brought why, and the read
// that asks why is not answered before ctx ends. That is no loss as far as is known, and
// not confirmed; the release continues until the reason is known.
func TestReleaseReadsTheReasonUntilItIsKnown(t *testing.T) {
	t.Parallel()
	for name, evicted := range map[string]bool{"ReleaseID": false, "Evict": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle())
			other, _ := f.Session(nil)
			p := acquire(t, ctx, sem(t, s, "x", 1), concurrency.ID("i"))
			c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1, Match: eventOn("/notice/")})
			ofNotice := func(_ string, msg any) bool {
				r, ok := msg.(*pb.RangeRequest)
				return ok && strings.Contains(string(r.Key), "/notice/")
			}
			read := c.Inject(embedtest.Fault{Method: "Range", Do: embedtest.HoldResponse, Times: -1, Match: ofNotice}) // in the background, too
			if evicted {
				require.NoError(t, sem(t, other, "x", 1).Evict(ctx, "i", "enough"))
			} else {
				require.NoError(t, sem(t, other, "x", 1).ReleaseID(ctx, "i"))
			}
			short, giveUp := context.WithCancel(ctx)
			result := make(chan error, 1)
			go func() { result <- p.Release(short) }()
			require.NoError(t, read.WaitHit(ctx))
			giveUp()
			err := got(t, result, "Release returns")
			require.ErrorIs(t, err, concurrency.ErrUnconfirmed)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, concurrency.ErrLost)
			read.Remove()
			require.NoError(t, read.Release())
			if evicted {
				require.ErrorContains(t, p.Release(ctx), "enough")
				require.ErrorIs(t, p.Release(ctx), concurrency.ErrEvicted)
			} else {
				require.NoError(t, p.Release(ctx))
			}
		})
	}
}

// A603: a request that is admitted at its key and waits for the total holds nothing yet. Whatever ends it, its call's error has
// the token that Status of the key has shown.
func TestTokenOfARequestThatWaitsForTheTotal(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(ctx context.Context, key *concurrency.Semaphore, token int64) error{
		"EvictToken": func(ctx context.Context, key *concurrency.Semaphore, token int64) error {
			return key.EvictToken(ctx, token, "enough")
		},
		"ReleaseID": func(ctx context.Context, key *concurrency.Semaphore, _ int64) error { return key.ReleaseID(ctx, "i") },
		"TakeOver": func(ctx context.Context, key *concurrency.Semaphore, _ int64) error {
			ask2(ctx, key, concurrency.ID("i"), concurrency.TakeOver())
			return nil
		},
		"RequestStop": func(ctx context.Context, key *concurrency.Semaphore, token int64) error {
			return key.RequestStop(ctx, token, "enough")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := shared(t), ctxT(t)
			s, _ := f.Session(idle())
			o, _ := f.Session(idle())
			lim, there := totaled(t, s, "llm", 1, 1), totaled(t, o, "llm", 1, 1)
			first := acquire(t, ctx, lim.Key("a"))
			call := ask(t, ctx, lim.Key("a"), concurrency.ID("i"))
			ask(t, ctx, there.Key("b"))
			require.NoError(t, first.Release(ctx), "the call's request joins the total, behind that of the other key")
			var shown concurrency.Request
			require.Eventually(t, func() bool {
				total, err := there.Total().Status(ctx)
				st, err2 := there.Key("a").Status(ctx)
				if err != nil || err2 != nil || len(total.Waiters) != 1 || len(st.Waiters) != 1 {
					return false
				}
				shown = st.Waiters[0]
				return shown.WaitsFor == concurrency.LevelTotal && shown.Token != total.Waiters[0].Token
			}, soon, tick)
			require.NoError(t, end(ctx, there.Key("a"), shown.Token))
			lost, ok := errors.AsType[*concurrency.LostError](got(t, call, "it has ended").err)
			require.True(t, ok)
			require.Equal(t, shown.Token, lost.Token)
		})
	}
}
