package concurrency_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

func election(t testing.TB, s *concurrency.Session, name string) *concurrency.Election {
	t.Helper()
	el, err := concurrency.NewElection(s, name)
	require.NoError(t, err)
	return el
}

// campaign campaigns in a goroutine and returns when the candidate is in etcd.
func (f fixture) campaign(ctx context.Context, el *concurrency.Election, opts ...concurrency.AcquireOption) <-chan answer {
	f.T.Helper()
	before := len(f.Keys("queue/"))
	ch := make(chan answer, 1)
	go func() {
		p, err := el.Campaign(ctx, opts...)
		ch <- answer{p, err}
	}()
	require.Eventually(f.T, func() bool { return len(ch) > 0 || len(f.Keys("queue/")) > before }, soon, tick)
	return ch
}

func leader(t testing.TB, el *concurrency.Election) concurrency.Leader {
	t.Helper()
	l, err := el.Leader(ctxT(t))
	require.NoError(t, err)
	return l
}

// A term is published with its note; the leader is read and watched, also when there is none.
func TestElection(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a, _ := f.Session(&concurrency.SessionOptions{Owner: "a"})
	b, _ := f.Session(&concurrency.SessionOptions{Owner: "b"})
	w, _ := f.Session(nil)
	ea, eb, ew := election(t, a, "x"), election(t, b, "x"), election(t, w, "x")
	l := leader(t, ew)
	require.False(t, l.Elected())
	require.Positive(t, l.Revision)
	require.Equal(t, concurrency.Leader{Revision: l.Revision}, l)
	next, stop := iter.Pull2(ew.Watch(ctx))
	defer stop()
	sees := func(want func(concurrency.Leader) bool, what string) {
		t.Helper()
		l, err, ok := next()
		require.True(t, ok)
		require.NoError(t, err)
		require.True(t, want(l), "%s, not %+v", what, l)
	}
	sees(func(l concurrency.Leader) bool { return !l.Elected() }, "no leader at first")

	begun := time.Now().Add(-time.Second)
	ta, err := ea.Campaign(ctx, concurrency.Note("10.0.0.1:80"))
	require.NoError(t, err)
	l = leader(t, ew)
	require.Equal(t, concurrency.Leader{Token: ta.Token(), Owner: "a", Note: "10.0.0.1:80", Lease: a.Lease(), Requested: l.Requested, Revision: l.Revision}, l)
	require.WithinRange(t, l.Requested, begun, time.Now().Add(time.Second))
	sees(func(l concurrency.Leader) bool { return l.Token == ta.Token() && l.Note == "10.0.0.1:80" }, "a leads")
	wb := f.campaign(ctx, eb)
	waiting(t, wb, "a leads")
	st, err := ew.Status(ctx)
	require.NoError(t, err)
	require.Len(t, st.Holders, 1)
	require.Len(t, st.Waiters, 1)
	require.NoError(t, ta.Release(ctx))
	tb := granted(t, wb, "a has resigned")
	require.Greater(t, tb.Token(), ta.Token())
	sees(func(l concurrency.Leader) bool { return l.Token == tb.Token() && l.Owner == "b" }, "b leads")
	require.NoError(t, tb.Release(ctx))
	sees(func(l concurrency.Leader) bool { return !l.Elected() }, "no leader at last")
	require.False(t, leader(t, ea).Elected())
	f.NoKeys("/queue/")

	// A semaphore and a mutex of that name are others.
	require.NoError(t, lock(t, a, "x").Release(ctx))
	tb, err = eb.Campaign(ctx)
	require.NoError(t, err)
	require.NoError(t, lock(t, a, "x").Release(ctx))

	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range ew.Watch(ended) {
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NoError(t, w.Close(ctx))
	_, err = ew.Leader(ctx)
	require.ErrorIs(t, err, concurrency.ErrClosed)
	for _, err := range ew.Watch(ctx) {
		require.ErrorIs(t, err, concurrency.ErrClosed)
	}
}

// A watch that begins, or continues, on a view that lags behind never shows a leader that
// the caller knows to be gone: not after a read, nor after compaction and a broken
// connection.
func TestElectionWatchIsMonotone(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	a, _ := f.Session(idle())
	s, c := f.Session(idle())
	ea, es := election(t, a, "x"), election(t, s, "x")
	var old *concurrency.Permit
	for l, err := range es.Watch(ctx) { // so that there is a view, which lingers
		require.NoError(t, err)
		if old != nil {
			require.Equal(t, old.Token(), l.Token)
			break
		}
		require.False(t, l.Elected())
		old, err = ea.Campaign(ctx)
		require.NoError(t, err)
	}
	seen := make(chan concurrency.Leader, 100)
	first := make(chan error, 1)
	mute := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1, Match: eventOn("/queue/")})
	require.NoError(t, old.Release(ctx))
	term, err := ea.Campaign(ctx)
	require.NoError(t, err)
	require.NoError(t, mute.WaitHit(ctx))
	require.Equal(t, term.Token(), leader(t, es).Token)
	go func() {
		for l, err := range es.Watch(ctx) {
			if err != nil {
				first <- err
				return
			}
			seen <- l
		}
	}()
	require.Equal(t, term.Token(), got(t, seen, "the first").Token, "the view has lost that")
	mute.Remove()
	c.Cut()
	require.NoError(t, term.Release(ctx))
	for range 3 {
		term, err = ea.Campaign(ctx)
		require.NoError(t, err)
		require.NoError(t, term.Release(ctx))
	}
	_, err = f.Compact(ctx)
	require.NoError(t, err)
	c.Heal()
	last := int64(0)
	l := got(t, seen, "it continues")
	require.False(t, l.Elected(), "%+v", l)
	term, err = ea.Campaign(ctx)
	require.NoError(t, err)
	for last < term.Token() {
		l := got(t, seen, "the last one")
		if l.Elected() {
			require.Greater(t, l.Token, last)
			last = l.Token
		}
	}
	require.Equal(t, term.Token(), last)
	require.Empty(t, first)
}

// J12: bad input answers at once, says what is wrong and leaves nothing in etcd. That a
// lease is renewed in time is shown of the session: TestRenewalsAreOnTime.
func TestElectionBadInput(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	before := f.Keys("")
	for _, name := range []string{"", "a/b", "a\x00b", "\xff", strings.Repeat("x", 256)} {
		_, err := concurrency.NewElection(s, name)
		require.ErrorIs(t, err, concurrency.ErrInvalid, "%q", name)
	}
	_, err := concurrency.NewElection(nil, "x")
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	el := election(t, s, "x")
	never := func(context.Context, *concurrency.Permit) error { t.Error("fn ran"); return nil }
	for what, o := range map[string][]concurrency.AcquireOption{
		"weight":            {concurrency.Weight(2)},
		"hold 0":            {concurrency.MaxHold(0)},
		"waiters below 0":   {concurrency.MaxWaiters(-1)},
		"empty ID":          {concurrency.ID("")},
		"take over nothing": {concurrency.TakeOver()},
		"nil option":        {nil},
	} {
		_, err := el.Campaign(ctx, o...)
		require.ErrorIs(t, err, concurrency.ErrInvalid, what)
		require.ErrorContains(t, err, `"x"`)
		require.ErrorIs(t, el.Lead(ctx, never, o...), concurrency.ErrInvalid, what)
	}
	require.ErrorIs(t, el.Lead(ctx, nil), concurrency.ErrInvalid)
	require.ErrorIs(t, el.Lead(ctx, never, concurrency.ID("i"), concurrency.TakeOver()), concurrency.ErrInvalid)
	_, err = el.StepDown(ctx, "\xff")
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	_, err = el.StepDown(ctx, strings.Repeat("x", 1025))
	require.ErrorIs(t, err, concurrency.ErrInvalid)
	require.ErrorIs(t, el.EvictToken(ctx, 1, "\xff"), concurrency.ErrInvalid)
	require.ErrorIs(t, el.EvictToken(ctx, 1, ""), concurrency.ErrNotHeld)

	c.ResetRequests()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, el.Lead(ended, never), context.Canceled)
	_, err = el.Campaign(ended)
	require.ErrorIs(t, err, context.Canceled)
	_, err = el.StepDown(ended, "")
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, c.Requests()["Txn"])
	require.Equal(t, before, f.Keys(""), "nothing was written")

	require.NoError(t, s.Close(ctx))
	require.ErrorIs(t, el.Lead(ctx, never), concurrency.ErrClosed)
	_, err = el.StepDown(ctx, "")
	require.ErrorIs(t, err, concurrency.ErrClosed)
	_, err = concurrency.NewElection(s, "x")
	require.ErrorIs(t, err, concurrency.ErrClosed)
}

// J2, etcd #19597: the lease of a candidate is revoked while it waits. It campaigns anew
// on the next lease, behind the others, and never leads without a key.
func TestCandidateOfALostLease(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	a, _ := f.Session(nil)
	b, _ := f.Session(nil)
	es, ea, eb := election(t, s, "x"), election(t, a, "x"), election(t, b, "x")
	first, err := ea.Campaign(ctx)
	require.NoError(t, err)
	ws := f.campaign(ctx, es)
	wb := f.campaign(ctx, eb)
	old := s.Lease()
	again := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(true), Do: embedtest.HoldRequest})
	require.NoError(t, f.RevokeLease(ctx, old))
	require.NoError(t, again.WaitHit(ctx), "it campaigns anew")
	require.NoError(t, first.Release(ctx))
	second := granted(t, wb, "the next request in etcd")
	waiting(t, ws, "it has no key: a phantom leader")
	require.Equal(t, second.Token(), leader(t, es).Token)
	require.NoError(t, again.Release())
	require.NoError(t, second.Release(ctx))
	third := granted(t, ws, "on the new lease")
	require.NotEqual(t, old, s.Lease())
	l := leader(t, ea)
	require.Equal(t, third.Token(), l.Token)
	require.Equal(t, s.Lease(), l.Lease)
	require.NoError(t, third.Err())
	resp, err := f.Client().Txn(ctx).If(third.Guard()).Then(clientv3.OpPut(f.Root+"y", "")).Commit()
	require.NoError(t, err)
	require.True(t, resp.Succeeded)
}

// J11: a term that was lost stays lost while the same process leads the next one. It
// neither renews nor ends that, and no error of the one names the other.
func TestPastTermStaysPast(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	other, _ := f.Session(nil)
	el := election(t, s, "x")
	past, err := el.Campaign(ctx)
	require.NoError(t, err)
	require.NoError(t, f.RevokeLease(ctx, s.Lease()))
	lostBy(t, past, concurrency.ErrLost)
	term, err := el.Campaign(ctx)
	require.NoError(t, err)
	require.Greater(t, term.Token(), past.Token())
	require.ErrorIs(t, past.Err(), concurrency.ErrLost)
	require.ErrorIs(t, past.Release(ctx), concurrency.ErrLost)
	require.Error(t, past.StopRequested().Err())
	require.NoError(t, term.Err())
	require.NoError(t, term.StopRequested().Err())
	require.ErrorIs(t, election(t, other, "x").EvictToken(ctx, past.Token(), ""), concurrency.ErrNotHeld)
	for i, p := range []*concurrency.Permit{past, term} {
		resp, err := f.Client().Txn(ctx).If(p.Guard()).Then(clientv3.OpPut(f.Root+"y", "")).Commit()
		require.NoError(t, err)
		require.Equal(t, i == 1, resp.Succeeded)
	}
	require.NoError(t, term.Release(ctx))
}

// J23: whatever deletes a term's keys under a live leader, the leader learns of it by its
// watches, not by its lease's end, and its resignation does not affect the next one.
func TestTermWithDeletedKeys(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(f fixture, s *concurrency.Session) error{
		"lease revoked": func(f fixture, s *concurrency.Session) error { return f.RevokeLease(ctxT(f.T), s.Lease()) },
		"presence deleted": func(f fixture, _ *concurrency.Session) error {
			_, err := f.Client().Delete(ctxT(f.T), f.Keys("/alive")[0])
			return err
		},
		"term deleted": func(f fixture, _ *concurrency.Session) error {
			_, err := f.Client().Delete(ctxT(f.T), f.Keys("/queue/")[0])
			return err
		},
		"term without a lease": func(f fixture, _ *concurrency.Session) error {
			_, err := f.Client().Put(ctxT(f.T), f.Keys("/queue/")[0], "mine")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			opts, reported := traced(idle())
			s, _ := f.Session(opts)
			el := election(t, s, "x")
			term, err := el.Campaign(ctx)
			require.NoError(t, err)
			require.NoError(t, strike(f, s))
			lostBy(t, term, concurrency.ErrLost)
			require.Equal(t, term.Token(), got(t, reported.permit, "the hook").Token)
			next, err := el.Campaign(ctx)
			require.NoError(t, err)
			require.ErrorIs(t, term.Release(ctx), concurrency.ErrLost)
			require.NoError(t, next.Err())
			require.Equal(t, next.Token(), leader(t, el).Token)
			require.NoError(t, next.Release(ctx))
		})
	}
}

// An evicted leader gets the name of the evicting process, though its term's key and the notice on it
// come by two watches.
func TestEvictedLeaderGetsTheReason(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	admin, _ := f.Session(&concurrency.SessionOptions{Owner: "admin"})
	term, err := election(t, s, "x").Campaign(ctx)
	require.NoError(t, err)
	mute := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Times: -1, Match: eventOn("/notice/")})
	defer mute.Remove()
	require.NoError(t, election(t, admin, "x").EvictToken(ctx, term.Token(), "too slow"))
	lostBy(t, term, concurrency.ErrEvicted)
	require.ErrorContains(t, term.Err(), "by admin: too slow")
}

// A watch that has lost the event by which a term came does not take it for gone.
func TestTermOutlivesALostEvent(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx := ctxT(t)
	s, c := f.Session(idle())
	el := election(t, s, "x")
	var past *concurrency.Permit
	var key string
	for l, err := range el.Watch(ctx) { // so that there is a view, which lingers
		require.NoError(t, err)
		switch {
		case past == nil:
			past, err = el.Campaign(ctx)
			require.NoError(t, err)
			key = f.Keys("/queue/")[0]
			continue
		case l.Elected():
			require.NoError(t, past.Release(ctx))
			continue
		}
		break
	}
	mute := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Match: eventOn(key)})
	term, err := el.Campaign(ctx)
	require.NoError(t, err)
	require.NoError(t, mute.WaitHit(ctx))
	listed := c.Inject(embedtest.Fault{Method: "Range", Match: lists, Do: embedtest.Pass})
	_, err = f.Client().Put(ctx, key+"x", "foreign, and of a later revision")
	require.NoError(t, err)
	require.NoError(t, listed.WaitHit(ctx), "it lists again")
	_, err = f.Client().Delete(ctx, key+"x")
	require.NoError(t, err)
	require.NoError(t, term.Err())
	require.NoError(t, term.Release(ctx), "the term continued")
}
