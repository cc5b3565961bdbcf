package life

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var (
	errLost  = errors.New("trust has ended")
	errLate  = errors.New("the bound has passed")
	errDone  = errors.New("done")
	errTaken = errors.New("taken away")
)

// lease is trusted until a time.
type lease struct {
	mu    sync.Mutex
	until time.Time
}

func (l *lease) Valid() bool { return time.Now().Before(l.Deadline()) }
func (l *lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

func (l *lease) renew(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = until
}

// ends is a Handle of functions.
type ends struct {
	lost, late func() error
	after      func(cause error)
}

func (e ends) LostCause() error  { return e.lost() }
func (e ends) LateCause() error  { return e.late() }
func (e ends) Ended(cause error) { e.after(cause) }

func begun(ctx context.Context, trust Trust, h Handle) *Life {
	l := &Life{}
	l.Begin(ctx, trust, h)
	return l
}

// fixture is a life on a lease of a minute, with what After was called with.
type fixture struct {
	*Life
	lease *lease
	after atomic.Int32
}

func begin() *fixture {
	f := &fixture{lease: &lease{until: time.Now().Add(time.Minute)}}
	f.Life = begun(context.Background(), f.lease, ends{
		lost:  func() error { return errLost },
		late:  func() error { return errLate },
		after: func(error) { f.after.Add(1) },
	})
	return f
}

func in(d time.Duration) time.Time { return time.Now().Add(d) }

// One row for each transition of the picture in the package's documentation.
func TestTransitions(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, c := range map[string]struct {
		do    func(f *fixture)
		err   error // after do
		after int   // how often After was called
	}{
		"live":        {func(f *fixture) { time.Sleep(59 * s) }, nil, 0},
		"live, End":   {func(f *fixture) { f.End(errDone) }, errDone, 0},
		"live, bound": {func(f *fixture) { _ = f.Bound(in(s)); time.Sleep(s) }, errLate, 1},
		"live, bound by the clock before the timer": {func(f *fixture) { _ = f.Bound(in(-s)); _ = f.Err() }, errLate, 1},
		"live, end of trust":                        {func(f *fixture) { time.Sleep(60 * s) }, errLost, 1},
		"live, bound moved later":                   {func(f *fixture) { _ = f.Bound(in(s)); _ = f.Bound(in(3 * s)); time.Sleep(2 * s) }, nil, 0},
		"live, bound moved earlier":                 {func(f *fixture) { _ = f.Bound(in(3 * s)); _ = f.Bound(in(s)); time.Sleep(2 * s) }, errLate, 1},
		"live, bound and trust end together":        {func(f *fixture) { _ = f.Bound(in(60 * s)); time.Sleep(60 * s) }, errLate, 1},
		"halted, bound":                             {func(f *fixture) { _ = f.Bound(in(s)); f.Halt(); time.Sleep(2 * s) }, nil, 0},
		"halted, moved":                             {func(f *fixture) { f.Halt(); _ = f.Bound(in(s)); time.Sleep(2 * s) }, nil, 0},
		"halted, End":                               {func(f *fixture) { f.Halt(); f.End(errDone) }, errDone, 0},
		"halted, end of trust":                      {func(f *fixture) { f.Halt(); time.Sleep(60 * s) }, errLost, 1},
		"resumed before the bound":                  {func(f *fixture) { _ = f.Bound(in(2 * s)); f.Halt(); f.Resume(); time.Sleep(s) }, nil, 0},
		"resumed, bound":                            {func(f *fixture) { _ = f.Bound(in(2 * s)); f.Halt(); f.Resume(); time.Sleep(2 * s) }, errLate, 1},
		"resumed after the bound":                   {func(f *fixture) { _ = f.Bound(in(s)); f.Halt(); time.Sleep(2 * s); f.Resume(); synctest.Wait() }, errLate, 1},
		"live, End twice":                           {func(f *fixture) { f.End(errTaken); f.End(errTaken) }, errTaken, 0},
		"ended, bound":                              {func(f *fixture) { _ = f.Bound(in(s)); f.End(errDone); time.Sleep(2 * s) }, errDone, 0},
		"ended, halted and resumed":                 {func(f *fixture) { f.End(errDone); f.Halt(); f.Resume() }, errDone, 0},
		"ended, End":                                {func(f *fixture) { f.End(errDone); f.End(errLost) }, errDone, 0},
		"ended, end of trust":                       {func(f *fixture) { f.End(errDone); time.Sleep(60 * s) }, errDone, 0},
		"ended, Bound":                              {func(f *fixture) { f.End(errDone); _ = f.Bound(in(s)); time.Sleep(2 * s) }, errDone, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := begin()
				c.do(f)
				synctest.Wait()
				if c.err != errLost { // no timer follows the lease
					require.Equal(t, c.err, f.Cause())
				}
				require.Equal(t, c.err, f.Err())
				require.Equal(t, c.err, f.Cause())
				require.Equal(t, c.err, context.Cause(f.Context()))
				require.Equal(t, c.err, f.Err(), "once more")
				require.EqualValues(t, c.after, f.after.Load())
				f.End(errDone)
			})
		})
	}
}

// Interrupt ends the context alone: the bound still ends the life.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, awaited := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := begin()
			if awaited {
				_ = f.Context().Done()
			}
			require.NoError(t, f.Bound(in(time.Second)))
			f.Interrupt(errTaken)
			require.Equal(t, errTaken, context.Cause(f.Context()))
			<-f.Context().Done()
			require.NoError(t, f.Cause())
			require.NoError(t, f.Err())
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, errLate, f.Err())
			require.Equal(t, errTaken, context.Cause(f.Context()))
			require.EqualValues(t, 1, f.after.Load())
		})
		f := begin()
		if awaited {
			_ = f.Context().Done()
		}
		f.End(errDone)
		f.Interrupt(errTaken)
		require.Equal(t, errDone, context.Cause(f.Context()))
	}
}

// After a pause beyond both, what counts is that trust has ended: another may hold by now.
func TestPauseBeyondBoth(t *testing.T) {
	t.Parallel()
	f := begin()
	require.NoError(t, f.Bound(in(time.Hour)))
	f.lease.renew(in(-time.Second))
	f.until = in(-time.Second) // no timer has fired yet
	require.Equal(t, errLost, f.Err())
}

// A timer that fires just as the bound is halted or moved ends nothing.
func TestTimerComesLate(t *testing.T) {
	t.Parallel()
	f := begin()
	require.NoError(t, f.Bound(in(time.Hour)))
	f.pass() // as the timer of an earlier bound
	require.NoError(t, f.Cause())
	f.Halt()
	require.NoError(t, f.Bound(in(-time.Second)))
	f.pass()
	require.NoError(t, f.Cause())
	require.True(t, f.End(errDone))
	f.pass()
	require.Equal(t, errDone, f.Cause())
	require.Zero(t, f.after.Load())
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := begin()
		trusted := f.lease.Deadline()
		require.Equal(t, trusted, f.Deadline())
		require.NoError(t, f.Bound(in(time.Second)))
		require.Equal(t, in(time.Second), f.Deadline())
		f.Halt()
		require.Equal(t, trusted, f.Deadline())
		f.Resume()
		require.NoError(t, f.Bound(in(time.Hour)))
		require.Equal(t, trusted, f.Deadline())
		f.lease.renew(in(2 * time.Hour))
		require.Equal(t, in(time.Hour), f.Deadline())
		require.True(t, f.End(errDone))
		require.Equal(t, errDone, f.Bound(in(time.Hour)))
	})
}

// The context of a life ends with the ctx that it was derived from; that is no end of the
// life.
func TestCtxOfTheCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	l := begun(ctx, &lease{until: in(time.Hour)}, ends{})
	cancel()
	require.ErrorIs(t, l.Context().Err(), context.Canceled)
	require.NoError(t, l.Err())
	require.True(t, l.End(errDone))
	require.Equal(t, errDone, l.Err())
}

// A life that has ended before the ctx of the caller keeps its cause, also if nothing waited for the end until later.
func TestCauseBeforeThatOfTheCaller(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"the life first": true, "the caller first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outer, cancel := context.WithCancelCause(t.Context())
			l := begun(outer, &lease{until: time.Now().Add(time.Hour)}, ends{})
			if before {
				l.End(errDone)
			}
			cancel(errTaken)
			l.End(errDone)
			want := errTaken
			if before {
				want = errDone
			}
			require.Equal(t, want, context.Cause(l.Context()))
			require.Error(t, l.Context().Err())
		})
	}
}

// However many end a life at once: one of them has ended it, and everybody sees that cause.
func TestOneCause(t *testing.T) {
	t.Parallel()
	for range 5_000 {
		l := begun(context.Background(), &lease{until: in(time.Hour)}, ends{})
		causes := []error{errors.New("a"), errors.New("b"), errors.New("c")}
		won := make(chan error, len(causes))
		var wg sync.WaitGroup
		for _, cause := range causes {
			wg.Go(func() {
				ended := l.End(cause)
				if err := l.Err(); ended && err != cause || err != context.Cause(l.Context()) {
					t.Errorf("End(%v) = %t, Err %v, context.Cause %v", cause, ended, err, context.Cause(l.Context()))
				}
				if ended {
					won <- cause
				}
			})
		}
		wg.Wait()
		require.Len(t, won, 1)
		require.Equal(t, <-won, l.Err())
	}
}

// The context is done as soon as Err is not nil, and the other way round.
func TestErrAndContextTogether(t *testing.T) {
	t.Parallel()
	for range 5_000 {
		l := begun(context.Background(), &lease{until: in(time.Hour)}, ends{})
		go l.End(errDone)
		for {
			cause := l.Cause()
			done := l.Context().Err() != nil
			if cause != nil && !done {
				t.Fatal("it has ended, and its context has not")
			}
			if cause != nil {
				break
			}
		}
	}
}

// Any order of calls, in virtual time, against a model of ten lines.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 1, 20).Draw(rt, "steps")
		var failure string
		synctest.Test(t, func(*testing.T) { failure = play(steps) })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

type step struct {
	op string
	d  time.Duration
}

func drawStep(t *rapid.T) step {
	return step{rapid.SampledFrom([]string{"bound", "halt", "resume", "end", "renew", "sleep", "sleep", "err"}).Draw(t, "op"),
		time.Duration(rapid.IntRange(0, 20).Draw(t, "s")) * time.Second}
}

func play(steps []step) string {
	f := begin()
	defer f.End(errDone)
	var (
		want   error
		bound  time.Time
		halted bool
		after  int
	)
	for i, s := range steps {
		switch s.op {
		case "bound":
			if want == nil {
				bound = in(s.d)
			}
			_ = f.Bound(in(s.d))
		case "halt":
			halted = true
			f.Halt()
		case "resume":
			halted = false
			f.Resume()
		case "end":
			if want == nil {
				want = errDone
			}
			f.End(errDone)
		case "renew":
			f.lease.renew(in(s.d))
		case "sleep":
			time.Sleep(s.d)
		}
		synctest.Wait()
		if want == nil && !bound.IsZero() && !halted && !time.Now().Before(bound) {
			want, after = errLate, 1
		}
		if want == nil && s.op == "err" && !f.lease.Valid() {
			want, after = errLost, 1
		}
		got := f.Cause()
		if s.op == "err" {
			got = f.Err()
		}
		if got != want || context.Cause(f.Context()) != want || int(f.after.Load()) != after {
			return fmt.Sprintf("step %d of %v: cause %v, context.Cause %v, After %v; want %v", i, steps, got, context.Cause(f.Context()), f.after.Load(), want)
		}
	}
	return ""
}
