package concurrency_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// term is one run of a function under Lead.
type term struct {
	*concurrency.Permit
	ctx context.Context
	end chan error // send what the function is to return
}

// lead runs Lead in a goroutine. The function reports each term and returns what the
// test says. What it has not learned of, such as a term after one that was lost on a busy
// machine, ends with the test.
func lead(t testing.TB, ctx context.Context, el *concurrency.Election, opts ...concurrency.AcquireOption) (terms <-chan term, result <-chan error) {
	began, done := make(chan term, 100), make(chan error, 1)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go func() {
		done <- el.Lead(ctx, func(ctx context.Context, p *concurrency.Permit) error {
			now := term{p, ctx, make(chan error)}
			began <- now
			select {
			case err := <-now.end:
				return err
			case <-over:
				return context.Canceled
			}
		}, opts...)
	}()
	return began, done
}

func quiet[T any](t testing.TB, ch <-chan T, why string) {
	t.Helper()
	select {
	case v := <-ch:
		require.FailNow(t, why, "%v", v)
	default:
	}
}

// What the function returns while its term is good is what Lead returns, and it
// resigns.
func TestLeadUntilDone(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	el := election(t, s, "x")
	mine := errors.New("mine")
	for _, want := range []error{nil, mine} {
		terms, result := lead(t, ctx, el, concurrency.Note("here"))
		now := got(t, terms, "it leads")
		l := leader(t, el)
		require.Equal(t, now.Token(), l.Token)
		require.Equal(t, "here", l.Note)
		require.NoError(t, now.ctx.Err())
		now.end <- want
		require.Equal(t, want, got(t, result, "Lead returns"))
		require.Error(t, now.ctx.Err(), "no context outlives the function")
		require.Empty(t, f.Keys("/queue/"))
		require.ErrorIs(t, now.Err(), concurrency.ErrReleased)
	}
	require.PanicsWithValue(t, "boom", func() {
		_ = el.Lead(ctx, func(context.Context, *concurrency.Permit) error { panic("boom") })
	})
	require.Empty(t, f.Keys("/queue/"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = el.Lead(ctx, func(context.Context, *concurrency.Permit) error { runtime.Goexit(); return nil })
	}()
	closed(t, done, "Goexit")
	require.Empty(t, f.Keys("/queue/"))

	// Its options count for each term.
	blocked, err := el.Campaign(ctx)
	require.NoError(t, err)
	_, result := lead(t, ctx, el, concurrency.MaxWaiters(0))
	require.ErrorIs(t, got(t, result, "Lead returns"), concurrency.ErrFull)
	require.NoError(t, blocked.Release(ctx))
}

// A function that releases its term itself is done when it returns, unless it was asked to
// step down.
func TestLeadWhoseFunctionReleases(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	el := election(t, s, "x")
	mine := errors.New("mine")
	for _, want := range []error{nil, mine} {
		terms, result := lead(t, ctx, el)
		now := got(t, terms, "it leads")
		require.NoError(t, now.Release(ctx))
		closed(t, now.ctx.Done(), "its context has ended")
		now.end <- want
		require.Equal(t, want, got(t, result, "Lead returns"))
		quiet(t, terms, "it leads again")
	}
	terms, result := lead(t, ctx, el)
	now := got(t, terms, "it leads")
	_, err := el.StepDown(ctx, "")
	require.NoError(t, err)
	closed(t, now.ctx.Done(), "it is asked")
	require.NoError(t, now.Release(ctx))
	now.end <- nil
	now = got(t, terms, "it leads again")
	now.end <- nil
	require.NoError(t, got(t, result, "Lead returns"))
}

// When ctx ends, the function is notified, the term is kept until it has returned, and both
// errors are.
func TestLeadUntilCtxEnds(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(nil)
	el := election(t, s, "x")
	mine := errors.New("mine")
	for _, returned := range []error{nil, mine, context.Canceled} {
		ctx, cancel := context.WithCancel(ctxT(t))
		terms, result := lead(t, ctx, el)
		now := got(t, terms, "it leads")
		cancel()
		closed(t, now.ctx.Done(), "the function is notified")
		require.NoError(t, now.Err(), "the term continues")
		require.Equal(t, now.Token(), leader(t, el).Token)
		now.end <- returned
		err := got(t, result, "Lead returns")
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, returned == mine, errors.Is(err, mine))
		f.NoKeys("/queue/")
	}
	blocked, err := el.Campaign(ctxT(t))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(ctxT(t))
	_, result := lead(t, ctx, el)
	require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, tick)
	cancel()
	require.ErrorIs(t, got(t, result, "Lead returns"), context.Canceled)
	require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 1 }, soon, tick)
	require.NoError(t, blocked.Err())
}

// However a term ends early, Lead gives the function the reason and campaigns again,
// whatever that returns.
func TestLeadCampaignsAgain(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx, cancel := context.WithCancel(ctxT(t))
	s, _ := f.Session(idle())
	admin, _ := f.Session(nil)
	el, there := election(t, s, "x"), election(t, admin, "x")
	terms, result := lead(t, ctx, el)
	last := int64(0)
	for name, end := range map[string]struct {
		strike func(term) error
		cause  error
	}{
		"lease revoked": {func(term) error { return f.RevokeLease(ctx, s.Lease()) }, concurrency.ErrLost},
		"evicted":       {func(now term) error { return there.EvictToken(ctx, now.Token(), "") }, concurrency.ErrEvicted},
		"deleted": {func(term) error {
			_, err := f.Client().Delete(ctx, f.Keys("/queue/")[0])
			return err
		}, concurrency.ErrLost},
		"asked to step down": {func(term) error { _, err := there.StepDown(ctx, ""); return err }, concurrency.ErrStepDown},
	} {
		for _, returned := range []error{nil, errors.New("mine")} {
			now := got(t, terms, "it leads again: "+name)
			require.Greater(t, now.Token(), last)
			last = now.Token()
			require.NoError(t, end.strike(now), name)
			closed(t, now.ctx.Done(), name)
			require.ErrorIs(t, context.Cause(now.ctx), end.cause, name)
			now.end <- returned
		}
	}
	now := got(t, terms, "it leads")
	quiet(t, result, "Lead has returned")
	cancel()
	now.end <- nil
	require.ErrorIs(t, got(t, result, "Lead returns"), context.Canceled)

	// A candidate that is evicted while it waits stays one.
	first, err := there.Campaign(ctxT(t))
	require.NoError(t, err)
	terms, result = lead(t, ctxT(t), el)
	require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, tick)
	st, err := there.Status(ctxT(t))
	require.NoError(t, err)
	require.NoError(t, there.EvictToken(ctxT(t), st.Waiters[0].Token, ""))
	require.NoError(t, first.Release(ctxT(t)))
	got(t, terms, "it leads in the end").end <- nil
	require.NoError(t, got(t, result, "Lead returns"))
}

// A function that loses its term and returns, again and again, does not make for a
// storm of campaigns: pauses grow.
func TestLeadPausesAfterLosses(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	el := election(t, s, "x")
	begun, n := time.Now(), 0
	require.NoError(t, el.Lead(ctx, func(ctx context.Context, p *concurrency.Permit) error {
		if n++; n == 8 {
			return nil
		}
		if err := el.EvictToken(ctxT(t), p.Token(), ""); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}))
	require.Equal(t, 8, n)
	// At least half of 10, 20, … 640 ms.
	require.GreaterOrEqual(t, time.Since(begun), 635*time.Millisecond)
}

// J14, client-go's ReleaseOnCancel: whatever ends the term, and however slowly its
// function stops: the next one begins when it has returned.
func TestSuccessorWaitsForTheFunction(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(t *testing.T, s *concurrency.Session, el *concurrency.Election, cancel func()){
		"ctx ends": func(_ *testing.T, _ *concurrency.Session, _ *concurrency.Election, cancel func()) { cancel() },
		"step down": func(t *testing.T, _ *concurrency.Session, el *concurrency.Election, _ func()) {
			_, err := el.StepDown(ctxT(t), "")
			require.NoError(t, err)
		},
		"session closes": func(t *testing.T, s *concurrency.Session, _ *concurrency.Election, _ func()) {
			ctx, done := ctxT(t), make(chan error, 1)
			go func() { done <- s.Close(ctx) }()
			t.Cleanup(func() { require.NoError(t, got(t, done, "Close returns")) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			s, _ := f.Session(nil)
			other, _ := f.Session(nil)
			ctx, cancel := context.WithCancel(ctxT(t))
			defer cancel()
			terms, _ := lead(t, ctx, election(t, s, "x"))
			now := got(t, terms, "it leads")
			next, result := lead(t, ctxT(t), election(t, other, "x"))
			require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, tick)
			stop(t, s, election(t, other, "x"), cancel)
			closed(t, now.ctx.Done(), "the function is notified")
			for range 3 {
				require.Equal(t, now.Token(), leader(t, election(t, other, "x")).Token)
				time.Sleep(20 * time.Millisecond) // the successor has its chance
				quiet(t, next, "two lead")
			}
			now.end <- nil
			successor := got(t, next, "the successor leads")
			require.Greater(t, successor.Token(), now.Token())
			successor.end <- nil
			require.NoError(t, got(t, result, "Lead returns"))
		})
	}
}

// J13: Close notifies a leading function, waits for it, and leaves nothing; Lead
// returns ErrClosed with the function's error. A candidate is not called any more.
func TestCloseUnderLead(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(nil)
	leads, result := lead(t, ctx, election(t, s, "x"))
	now := got(t, leads, "it leads")
	waits, result2 := lead(t, ctx, election(t, s, "x"))
	require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, tick)
	var over atomic.Bool
	closing := make(chan error, 1)
	go func() {
		err := s.Close(ctx)
		over.Store(true)
		closing <- err
	}()
	require.ErrorIs(t, got(t, result2, "the candidate returns"), concurrency.ErrClosed)
	closed(t, now.ctx.Done(), "the function is notified")
	require.ErrorIs(t, context.Cause(now.ctx), concurrency.ErrClosed)
	require.NoError(t, now.Err(), "the term continues")
	require.False(t, over.Load(), "Close waits")
	mine := errors.New("mine")
	now.end <- mine
	err := got(t, result, "Lead returns")
	require.ErrorIs(t, err, concurrency.ErrClosed)
	require.ErrorIs(t, err, mine)
	require.NoError(t, got(t, closing, "Close returns"))
	require.Empty(t, f.Keys(""))
	quiet(t, waits, "a callback after Close")
	quiet(t, leads, "a callback after Close")

	// One whose function does not listen loses its term.
	s, _ = f.Session(nil)
	terms, result := lead(t, ctx, election(t, s, "x"))
	now = got(t, terms, "it leads")
	brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Close(brief), context.DeadlineExceeded)
	require.Empty(t, f.Keys(""))
	lostBy(t, now.Permit, concurrency.ErrClosed)
	now.end <- nil
	require.ErrorIs(t, got(t, result, "Lead returns"), concurrency.ErrClosed)
	quiet(t, terms, "a callback after Close")
}
