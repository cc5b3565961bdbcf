package concurrency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// The leader is asked at once, with who and why, keeps its term until it resigns,
// and is behind the others then. Without a leader no process is asked.
func TestStepDown(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, _ := f.Session(idle())
	b, _ := f.Session(idle())
	admin, _ := f.Session(&concurrency.SessionOptions{Owner: "admin"})
	el := election(t, admin, "x")
	asked, err := el.StepDown(ctx, "")
	require.NoError(t, err)
	require.False(t, asked.Elected())

	as, _ := lead(t, ctx, election(t, a, "x"))
	first := got(t, as, "a leads")
	bs, _ := lead(t, ctx, election(t, b, "x"))
	require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, tick)
	asked, err = el.StepDown(ctx, "deploy")
	require.NoError(t, err)
	require.Equal(t, first.Token(), asked.Token)
	closed(t, first.ctx.Done(), "it is asked")
	var word *concurrency.StepDownError
	require.ErrorAs(t, context.Cause(first.ctx), &word)
	require.Equal(t, concurrency.StepDownError{Name: "x", Token: first.Token(), Reason: "by admin: deploy"}, *word)
	require.ErrorContains(t, word, `"x"`)
	require.ErrorContains(t, word, "deploy")
	require.Equal(t, context.Cause(first.ctx), context.Cause(first.StopRequested()))
	require.NoError(t, first.Context().Err())
	require.NoError(t, first.Err())
	_, err = el.StepDown(ctx, "now")
	require.NoError(t, err, "once more")
	f.NoKeys("/stop/")
	quiet(t, bs, "it has not gone yet")
	first.end <- nil
	second := got(t, bs, "b leads")
	require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, tick, "a campaigns again")
	require.NoError(t, second.ctx.Err(), "the successor was not asked")
	_, err = el.StepDown(ctx, "")
	require.NoError(t, err)
	closed(t, second.ctx.Done(), "it is asked")
	require.ErrorContains(t, context.Cause(second.ctx), "by admin")
	second.end <- nil
	third := got(t, as, "a leads again")
	require.Greater(t, third.Token(), second.Token())
	require.NoError(t, third.ctx.Err())
	f.NoKeys("/stop/")
	go func() { third.end <- nil }()
	got(t, bs, "").end <- nil
}

// A request that comes between two leaders is for the one who has gone. It never hits
// the successor, also if it arrives late.
func TestStepDownSparesTheSuccessor(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	admin, c := f.Session(idle())
	el := election(t, s, "x")
	first, err := el.Campaign(ctx)
	require.NoError(t, err)
	next := f.campaign(ctx, el)
	late := c.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.HoldRequest, Match: asksToStepDown})
	result := make(chan concurrency.Leader, 1)
	go func() {
		l, err := election(t, admin, "x").StepDown(ctx, "")
		assertNoError(t, err)
		result <- l
	}()
	require.NoError(t, late.WaitHit(ctx))
	require.NoError(t, first.Release(ctx))
	second := granted(t, next, "the next one")
	require.NoError(t, late.Release())
	require.Len(t, late.LateResponses(), 1)
	require.False(t, late.LateResponses()[0].Response.(*etcdserverpb.TxnResponse).Succeeded)
	require.Equal(t, first.Token(), got(t, result, "StepDown returns").Token)
	require.Empty(t, f.Keys("/stop/"))
	require.NoError(t, second.StopRequested().Err())
	require.NoError(t, second.Release(ctx))
}

func asksToStepDown(_ string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	return ok && len(r.Success) == 1 && contains(string(r.Success[0].GetRequestPut().GetKey()), "/stop/")
}

// A leader that does not know yet that it leads, because the answer is on its way, is
// asked as soon as it does. An answer to StepDown that was lost is no failure.
func TestStepDownBeforeTheLeaderKnows(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	admin, ac := f.Session(idle())
	held := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.HoldResponse})
	terms, result := lead(t, ctx, election(t, s, "x"))
	require.NoError(t, held.WaitHit(ctx))
	lost := ac.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Match: asksToStepDown})
	asked, err := election(t, admin, "x").StepDown(ctx, "early")
	require.NoError(t, err)
	require.True(t, asked.Elected())
	require.Equal(t, 1, lost.Hits())
	f.NoKeys("/stop/") // it has arrived
	require.NoError(t, held.Release())
	now := got(t, terms, "it leads")
	require.Equal(t, asked.Token, now.Token())
	closed(t, now.ctx.Done(), "it is asked")
	require.ErrorContains(t, context.Cause(now.ctx), "early")
	now.end <- nil
	now = got(t, terms, "it leads again")
	require.NoError(t, now.ctx.Err())
	now.end <- nil
	require.NoError(t, got(t, result, "Lead returns"))
}

// A leader that does not look keeps leading; any permit's holder is asked when its session is
// about to close.
func TestStopRequested(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	el := election(t, s, "x")
	term, err := el.Campaign(ctx)
	require.NoError(t, err)
	_, err = el.StepDown(ctx, "")
	require.NoError(t, err)
	f.NoKeys("/stop/")
	require.ErrorIs(t, context.Cause(term.StopRequested()), concurrency.ErrStepDown, "asked before it looked")
	require.NoError(t, term.Err())
	require.NoError(t, term.Release(ctx))
	require.ErrorIs(t, context.Cause(term.StopRequested()), concurrency.ErrStepDown, "the first cause counts")

	p, q := lock(t, s, "x"), lock(t, s, "y")
	asked := q.StopRequested()
	require.NoError(t, asked.Err())
	require.NoError(t, q.Release(ctx))
	require.ErrorIs(t, context.Cause(asked), concurrency.ErrReleased)
	closing := make(chan error, 1)
	go func() { closing <- s.Close(ctx) }()
	closed(t, p.StopRequested().Done(), "Close begins")
	require.ErrorIs(t, context.Cause(p.StopRequested()), concurrency.ErrClosed)
	require.NoError(t, p.Err())
	require.NoError(t, p.Release(ctx))
	require.NoError(t, got(t, closing, "Close returns"))
}
