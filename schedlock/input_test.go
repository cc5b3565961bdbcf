package schedlock_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
)

// Whatever is wrong with a call is said at once, and nothing of it is left in etcd or in
// this process.
func TestBadInput(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	at := schedlock.Tick(tick(1))
	opts := func(o ...schedlock.CallOption) []schedlock.CallOption { return o }
	for name, o := range map[string][]schedlock.CallOption{
		"negative AtMost":         opts(at, schedlock.AtMost(-1)),
		"no AtMost":               opts(at, schedlock.AtMost(0)),
		"small AtMost":            opts(at, schedlock.AtMost(time.Microsecond)),
		"negative AtLeast":        opts(at, schedlock.AtLeast(-1)),
		"AtLeast of Every":        opts(schedlock.Every(time.Minute), schedlock.AtLeast(time.Minute)),
		"AtLeast of nearly Every": opts(schedlock.Every(time.Minute), schedlock.AtLeast(time.Minute-time.Millisecond)),
		"small AtLeast":           opts(at, schedlock.AtLeast(time.Microsecond)),
		"negative LateBy":         opts(at, schedlock.LateBy(-time.Second)),
		"small LateBy":            opts(at, schedlock.LateBy(time.Microsecond)),
		"negative Every":          opts(schedlock.Every(-time.Second)),
		"no Every":                opts(schedlock.Every(0)),
		"small Every":             opts(schedlock.Every(time.Microsecond)),
		"a fraction in Every":     opts(schedlock.Every(time.Second + time.Nanosecond)),
		"negative Retries":        opts(at, schedlock.Retries(-1)),
		"many Retries":            opts(at, schedlock.Retries(1001)),
		"zero tick":               opts(schedlock.Tick(time.Time{})),
		"far tick":                opts(schedlock.Tick(time.Now().Add(time.Hour)), schedlock.AtMost(time.Minute)),
		"very far tick":           opts(schedlock.Tick(time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC))),
		"tick before Christ":      opts(schedlock.Tick(time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC))),
		"nil option":              opts(at, nil),
	} {
		res, err := a.Do(ctx, "job", nothing, o...)
		require.ErrorIs(t, err, schedlock.ErrInvalid, name)
		require.Equal(t, schedlock.NotClaimed, res.Outcome, name)
	}
	_, err := a.Do(ctx, "job", nil, at)
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	for _, name := range []string{"", "\x00", "a/\xff", "\n", strings.Repeat("x", 2000)} {
		_, err := a.Do(ctx, name, nothing, at)
		require.ErrorIs(t, err, schedlock.ErrInvalid, "%q", name)
		require.ErrorIs(t, a.Pause(ctx, name, ""), schedlock.ErrInvalid)
		require.ErrorIs(t, a.Resume(ctx, name), schedlock.ErrInvalid)
		require.ErrorIs(t, a.Unlock(ctx, name, ""), schedlock.ErrInvalid)
		_, err = a.History(ctx, name)
		require.ErrorIs(t, err, schedlock.ErrInvalid)
		_, err = a.Get(ctx, name, tick(1))
		require.ErrorIs(t, err, schedlock.ErrInvalid)
		_, err = a.Status(ctx, name)
		require.ErrorIs(t, err, schedlock.ErrInvalid)
		for _, err := range a.Watch(ctx, name) {
			require.ErrorIs(t, err, schedlock.ErrInvalid)
		}
	}
	// Not even in this process: a refused call does not make a job known.
	require.ErrorIs(t, a.Pause(ctx, "job", ""), schedlock.ErrUnknownJob)
	require.ErrorIs(t, a.Resume(ctx, "job"), schedlock.ErrUnknownJob)
	_, err = a.Status(ctx, "job")
	require.ErrorIs(t, err, schedlock.ErrUnknownJob)
	_, err = a.History(ctx, "job")
	require.ErrorIs(t, err, schedlock.ErrUnknownJob)
	_, err = a.Get(ctx, "job", tick(1))
	require.ErrorIs(t, err, schedlock.ErrGone)
	require.ErrorIs(t, a.Unlock(ctx, "job", ""), schedlock.ErrUnknownJob)
	require.ErrorIs(t, a.Pause(ctx, "job", strings.Repeat("x", 1025)), schedlock.ErrInvalid)
	require.ErrorIs(t, a.Pause(ctx, "job", "\xff"), schedlock.ErrInvalid)
	require.ErrorIs(t, a.Unlock(ctx, "job", "\xff"), schedlock.ErrInvalid)
	require.Empty(t, f.Keys("/job/"))

	res, err := a.Do(ctx, "job", func(_ context.Context, r *schedlock.Run) error {
		require.ErrorIs(t, r.Extend(0), schedlock.ErrInvalid)
		return nil
	}, at, schedlock.LateBy(math.MaxInt64), schedlock.AtMost(math.MaxInt64))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome, "what is very long is no error")

	for name, o := range map[string]*schedlock.Options{
		"Keep":             {Keep: -1},
		"much to Keep":     {Keep: 1001},
		"negative KeepFor": {KeepFor: -1},
		"negative MaxSkew": {MaxSkew: -1},
	} {
		_, err := schedlock.New(a.sess, o)
		require.ErrorIs(t, err, schedlock.ErrInvalid, name)
	}
	_, err = schedlock.New(nil, nil)
	require.ErrorIs(t, err, schedlock.ErrInvalid)
	require.NoError(t, a.sess.Close(ctx))
	_, err = schedlock.New(a.sess, nil)
	require.ErrorIs(t, err, schedlock.ErrClosed)
	_, err = a.Do(ctx, "job", nothing, schedlock.Tick(tick(2)), schedlock.AtMost(math.MaxInt64))
	require.ErrorIs(t, err, schedlock.ErrClosed)
	_, err = a.History(ctx, "job")
	require.ErrorIs(t, err, schedlock.ErrClosed)
}

// After Close no call reads or writes, however soon it comes.
func TestClosedAtOnce(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	_, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
	require.NoError(t, err)
	require.NoError(t, a.sess.Close(ctx))
	for range 300 {
		_, err := a.History(ctx, "job")
		require.ErrorIs(t, err, schedlock.ErrClosed)
		_, err = a.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
		require.ErrorIs(t, err, schedlock.ErrClosed)
		require.ErrorIs(t, a.Pause(ctx, "job", ""), schedlock.ErrClosed)
	}
}

// Whatever others have written where a job's keys are, no call panics, hangs or starts a
// tick twice.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		key, value string // below the job's range
		out        schedlock.Outcome
		says       string
	}{
		"a record of the tick": {"run/" + tick(1).UTC().Format(layout), "what?", schedlock.Claimed, ""},
		"a record's key":       {"run/" + tick(1).UTC().Format(layout) + "x", "", 0, "is not a run record"},
		"a floor's key":        {"floor/zzz", "", 0, "is not a run record"},
		"a lock":               {"lock", "\xff\x00", schedlock.StillRunning, ""},
		"a hold":               {"cooldown", "{}", schedlock.StillRunning, ""},
		"a pause":              {"pause", "", schedlock.Paused, ""},
		"settings":             {"settings", "AtMost 3 sheep", 0, "in use with other settings"},
		"another key":          {"color", "red", schedlock.Ran, ""},
		"an old record":        {"run/0", "", schedlock.Ran, ""},
		"an old floor":         {"floor/0", "", schedlock.Ran, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			a := f.instance(nil, nil)
			root := a.sess.NamespacePrefix() + "job/"
			_, err := f.Client().Put(ctx, root+"job/"+tt.key, tt.value)
			require.NoError(t, err)
			_, err = f.Client().Put(ctx, root+"%zz/x", "")
			require.NoError(t, err)
			for _, at := range [][]schedlock.CallOption{{schedlock.Tick(tick(1))}, {schedlock.Tick(tick(1)), schedlock.Retries(0)}} {
				bounded, cancel := context.WithTimeout(ctx, soon)
				res, err := a.Do(bounded, "job", nothing, at...)
				cancel()
				if tt.says != "" {
					require.ErrorContains(t, err, tt.says)
					require.NotErrorIs(t, err, context.DeadlineExceeded)
					continue
				}
				require.NoError(t, err)
				if tt.out == schedlock.Ran && res.Outcome == schedlock.Claimed {
					continue // the second time
				}
				require.Equal(t, tt.out, res.Outcome)
			}
			_, err = a.History(ctx, "job")
			require.NoError(t, err)
			_, err = a.Status(ctx, "job")
			require.NoError(t, err)
			names, err := a.Jobs(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"job"}, names)
			if _, err := a.Get(ctx, "job", tick(1)); err != nil {
				require.ErrorIs(t, err, schedlock.ErrGone)
			}
			err = a.Unlock(ctx, "job", "")
			if tt.key == "lock" || tt.key == "cooldown" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, schedlock.ErrNotRunning)
			}
			require.NoError(t, a.Resume(ctx, "job"))
			if tt.out == schedlock.StillRunning || tt.out == schedlock.Paused {
				res, err := a.Do(ctx, "job", nothing, schedlock.Tick(tick(2)))
				require.NoError(t, err)
				require.Equal(t, schedlock.Ran, res.Outcome, "an operator can mend it")
			}
		})
	}
}

const layout = "2006-01-02T15:04:05.000Z"

// A foreign key that is in the way of all ticks does not keep a call without a tick
// trying for ever.
func TestForeignKeyWithoutATick(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	_, err := f.Client().Put(ctxT(t), a.sess.NamespacePrefix()+"job/job/floor/zzz", "")
	require.NoError(t, err)
	_, err = a.Do(ctxT(t), "job", nothing)
	require.ErrorContains(t, err, "floor/zzz")
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

// Error texts are cut where a character ends, and stay readable whatever is in them.
func TestErrorTextsAreBounded(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, nil)
	for n, text := range []string{strings.Repeat("x", 1023) + "é", strings.Repeat("\x01", 5000), strings.Repeat("\xff", 5000), "a\xffb"} {
		fail := errors.New(text)
		_, err := a.Do(ctx, "job", func(context.Context, *schedlock.Run) error { return fail }, schedlock.Tick(tick(n)))
		require.ErrorIs(t, err, fail)
		r, err := a.Get(ctx, "job", tick(n))
		require.NoError(t, err)
		require.LessOrEqual(t, len(r.Error), 1024)
		require.NotEmpty(t, r.Error)
		require.Equal(t, schedlock.RunFailed, r.State)
	}
	r, err := a.Get(ctx, "job", tick(0))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("x", 1023), r.Error)
}

// Records go by age as well as by number; the latest stays.
func TestRecordsGoByAge(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	a := f.instance(nil, &schedlock.Options{KeepFor: 30 * time.Minute, Keep: 5})
	require.Eventually(t, func() bool { return schedlock.KnowsClocks(a.Locker) }, soon, time.Millisecond)
	now := time.Now().UTC().Truncate(time.Second)
	for _, ago := range []time.Duration{3 * time.Hour, 2 * time.Hour, 20 * time.Minute, 10 * time.Minute} {
		_, err := a.Do(ctx, "job", nothing, schedlock.Tick(now.Add(-ago)))
		require.NoError(t, err)
	}
	h, err := a.History(ctx, "job")
	require.NoError(t, err)
	require.Len(t, h, 2)
	_, err = a.Do(ctx, "old", nothing, schedlock.Tick(now.Add(-3*time.Hour)))
	require.NoError(t, err)
	h, err = a.History(ctx, "old")
	require.NoError(t, err)
	require.Len(t, h, 1, "the latest stays")
	res, err := f.instance(nil, nil).Do(ctx, "job", nothing, schedlock.Tick(now.Add(-2*time.Hour)))
	require.NoError(t, err)
	require.Equal(t, schedlock.Late, res.Outcome)
}

// What cannot be combined does not compile: no option of a call is one of a Job, or the other way
// round, except those of both.
func TestOptionsOfCallsAndJobs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		option    any
		call, job bool
	}{
		"Tick":      {schedlock.Tick(tick(1)), true, false},
		"Every":     {schedlock.Every(time.Minute), true, false},
		"OnMisfire": {schedlock.OnMisfire(schedlock.Once), false, true},
		"AtMost":    {schedlock.AtMost(time.Hour), true, true},
		"AtLeast":   {schedlock.AtLeast(time.Minute), true, true},
		"LateBy":    {schedlock.LateBy(time.Minute), true, true},
		"Retries":   {schedlock.Retries(1), true, true},
	} {
		_, call := tt.option.(schedlock.CallOption)
		_, job := tt.option.(schedlock.JobOption)
		_, both := tt.option.(schedlock.Option)
		require.Equal(t, []bool{tt.call, tt.job, tt.call && tt.job}, []bool{call, job, both}, name)
	}
}
