package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// A permit whose request in the total was deleted by hand is no permit any more: its guard fails at
// once, and its release reports the loss and leaves nothing, also if that is repeated.
func TestTotalDeletedByHand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts  []concurrency.AcquireOption
		fault *embedtest.Fault // of the release
	}{
		"released":              {},
		"with an ID":            {opts: []concurrency.AcquireOption{concurrency.ID("flow")}},
		"a heavy one":           {opts: []concurrency.AcquireOption{concurrency.Weight(2)}},
		"the first try fails":   {fault: &embedtest.Fault{Method: "Txn", Match: txn(false), Do: embedtest.FailWith}},
		"by a try":              {opts: []concurrency.AcquireOption{concurrency.Wait(0)}},
		"released in one's Do":  {},
		"released for no owner": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			o, ev := traced(idle())
			s, client := f.Session(o)
			lim := totaled(t, s, "llm", 2, 2)
			require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx), "the limits are stored")
			remove := func(p *concurrency.Permit) {
				t.Helper()
				keys := f.Keys("/total/queue/")
				require.Len(t, keys, 1)
				_, err := f.Client().Delete(ctx, keys[0])
				require.NoError(t, err)
				resp, err := f.Client().Txn(ctx).If(p.Guard()).Then(clientv3.OpGet(keys[0])).Commit()
				require.NoError(t, err)
				require.False(t, resp.Succeeded)
				if c.fault != nil {
					client.Inject(*c.fault)
				}
			}
			if name == "released in one's Do" {
				require.ErrorIs(t, lim.Key("a").Do(ctx, func(_ context.Context, p *concurrency.Permit) error {
					remove(p)
					return nil
				}), concurrency.ErrLost)
			} else {
				p := acquire(t, ctx, lim.Key("a"), c.opts...)
				remove(p)
				if name == "released for no owner" { // its ctx has ended: the release continues in the background
					ended, cancel := context.WithCancel(ctx)
					cancel()
					require.ErrorIs(t, p.Release(ended), concurrency.ErrUnconfirmed)
				}
				err := p.Release(ctx)
				require.ErrorIs(t, err, concurrency.ErrLost)
				require.Equal(t, err, p.Release(ctx), "the outcome stays")
			}
			lost := got(t, ev.permit, "Trace.Lost")
			require.Contains(t, lost.Reason, "gone before it was released")
			f.NoKeys("/queue/")
			f.NoKeys("/request-id/")
			require.NoError(t, acquire(t, ctx, lim.Key("a"), concurrency.Weight(2)).Release(ctx), "nothing counts any more")
		})
	}
}

// A permit whose request at the key was deleted by hand is lost as well: its release reports that, and
// does not leave the request in the total behind, also if the first answer to the release is lost.
func TestRequestAtTheKeyDeletedByHand(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	lim := totaled(t, s, "llm", 2, 2)
	require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx), "the limits are stored")
	for _, answered := range []bool{true, false} {
		p := acquire(t, ctx, lim.Key("a"))
		_, err := f.Client().Delete(ctx, f.Keys("/key/a/queue/")[0])
		require.NoError(t, err)
		if !answered {
			c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Do: embedtest.DropResponse})
		}
		require.ErrorIs(t, p.Release(ctx), concurrency.ErrLost)
		f.NoKeys("/queue/")
	}
	for range 2 {
		defer func(p *concurrency.Permit) { require.NoError(t, p.Release(ctx)) }(acquire(t, ctx, lim.Key("b")))
	}
}

// If the request at the key was deleted by hand, the end of its wait or of its MaxHold removes the
// request in the total at once, and not a sweep or the end of the lease.
func TestEndsWithoutItsRequestAtTheKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		total int
		opts  []concurrency.AcquireOption
		want  error
	}{
		"MaxHold in one Txn":                    {total: 2, opts: []concurrency.AcquireOption{concurrency.MaxHold(time.Second)}},
		"MaxHold of one with its own Txn":       {total: 2, opts: []concurrency.AcquireOption{concurrency.MaxHold(time.Second), concurrency.Wait(0)}},
		"a wait for the total that Wait ends":   {total: 1, opts: []concurrency.AcquireOption{concurrency.Wait(time.Second)}, want: concurrency.ErrFull},
		"a wait for the total that ctx cancels": {total: 1, want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, _ := f.Session(idle())
			lim := totaled(t, s, "llm", 2, c.total)
			other := acquire(t, ctx, lim.Key("b"))
			call, cancel := context.WithCancel(ctx)
			defer cancel()
			begun := time.Now()
			w := ask2(call, lim.Key("a"), c.opts...)
			if c.total == 1 {
				waitsInTotal(t, ctx, lim, 1)
				require.Eventually(t, func() bool { return concurrency.Waits(lim.Total()) }, soon, tick, "the call knows that it waits")
			} else {
				defer func(p *concurrency.Permit) { got(t, p.Context().Done(), "MaxHold") }(granted(t, w, "there is room"))
			}
			inTotal, atKey := f.Keys("/total/queue/"), f.Keys("/key/a/queue/")
			if c.want == nil && len(atKey) == 0 && time.Since(begun) >= time.Second {
				t.Skip("the machine is too busy for a MaxHold of a second")
			}
			require.Len(t, inTotal, 2)
			require.Len(t, atKey, 1)
			_, err := f.Client().Delete(ctx, atKey[0])
			require.NoError(t, err)
			if c.want == context.Canceled {
				cancel()
			}
			if c.want != nil {
				require.ErrorIs(t, got(t, w, "the wait ends").err, c.want)
			}
			require.Eventually(t, func() bool { return len(f.Keys("/total/queue/")) == 1 }, soon, tick, "the request in the total is left behind")
			require.NoError(t, other.Release(ctx))
			f.NoKeys("/queue/")
		})
	}
}

// A174: a call gives up while the answer to its Txn in the total is missing, and the request at its key is
// deleted by hand at that moment: whether the one in the total was written is not known. It is removed all the
// same, and not by the end of the lease.
func TestDoubtInTheTotalWithoutTheRequestAtTheKey(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]embedtest.Action{"it was written": embedtest.HoldResponse, "it comes later": embedtest.HoldRequest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle())
			lim := totaled(t, s, "llm", 2, 1)
			require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx), "the limits are stored")
			join := c.Inject(embedtest.Fault{Method: "Txn", Do: do, Match: func(_ string, msg any) bool {
				r, ok := msg.(*etcdserverpb.TxnRequest)
				return ok && writes(r, "/total/")
			}})
			call, cancel := context.WithCancel(ctx)
			defer cancel()
			result := make(chan error, 1)
			go func() {
				_, err := lim.Key("a").TryAcquire(call) // it joins the total in a Txn of its own
				result <- err
			}()
			require.NoError(t, join.WaitHit(ctx))
			_, err := f.Client().Delete(ctx, f.Keys("/key/a/queue/")[0])
			require.NoError(t, err)
			cancel()
			require.ErrorIs(t, got(t, result, "the call ends"), context.Canceled)
			f.NoKeys("/queue/")
			require.NoError(t, join.Release())
			require.NoError(t, acquire(t, ctx, lim.Key("a")).Release(ctx), "nothing counts any more")
			f.NoKeys("/queue/")
		})
	}
}

// A request in the total that is there as it was written is released without a loss, however it came
// there.
func TestTotalIsConfirmed(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	lim := totaled(t, s, "llm", 2, 2)
	p, q := acquire(t, ctx, lim.Key("a")), acquire(t, ctx, lim.Key("b")) // in one Txn with that at its key
	w := ask(t, ctx, lim.Key("c"))                                       // in the queue of the total
	waitsInTotal(t, ctx, lim, 1)
	require.NoError(t, p.Release(ctx))
	require.NoError(t, granted(t, w, "one is free").Release(ctx))
	try, err := lim.Key("a").TryAcquire(ctx) // in a Txn of its own
	require.NoError(t, err)
	require.NoError(t, try.Release(ctx))
	require.NoError(t, q.Release(ctx))
	f.NoKeys("/queue/")
}
