package virtual

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/gocronlock"
)

// gocronLock is gocron's type of a lock.
type gocronLock interface{ Unlock(context.Context) error }

func (d *desk) gocron(opts ...schedlock.Option) *gocronlock.Locker[gocronLock] {
	d.t.Helper()
	l, err := gocronlock.New[gocronLock](d.locker(), time.Hour, opts...)
	require.NoError(d.t, err)
	return l
}

// A run of gocron's that is lost: Unlock and Running report it, and the task is not called a second
// time behind gocron's back, whatever Retries says.
func TestGocronLoss(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		opts := []schedlock.Option{schedlock.Retries(3), schedlock.LateBy(2 * time.Hour)}
		one, two := on[0].gocron(opts...), on[1].gocron(opts...)
		lock, err := one.Lock(t.Context(), "job")
		require.NoError(t, err)
		r, ok := one.Running("job")
		require.True(t, ok)
		on[0].client.Refuse()
		again, err := two.Lock(within(t, time.Hour), "job")
		require.NoError(t, err, "the second attempt")
		free := on[0].begun.Add(ttl)
		require.WithinRange(t, time.Now(), free, free.Add(time.Second))
		require.ErrorIs(t, context.Cause(r.Context()), schedlock.ErrLost)
		next, ok := two.Running("job")
		require.True(t, ok)
		require.Equal(t, 2, next.Attempt())
		on[0].client.Heal()
		require.ErrorIs(t, lock.Unlock(t.Context()), schedlock.ErrLost)
		_, ok = one.Running("job")
		require.False(t, ok)
		require.NoError(t, next.Check(t.Context()))
		require.NoError(t, again.Unlock(t.Context()))
	})
}

// A run of gocron's that takes longer than AtMost: its task continues, and the job is not free before the
// margin has passed. Unlock reports it.
func TestGocronTooLong(t *testing.T) {
	t.Parallel()
	const most = 10 * time.Millisecond
	for after, want := range map[time.Duration]schedlock.State{margin - 1: schedlock.RunActive, margin + 1: schedlock.RunFailed} {
		t.Run(after.String(), func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				short := on[0].gocron(schedlock.AtMost(most))
				lock, err := short.Lock(t.Context(), "job")
				require.NoError(t, err)
				begun := time.Now()
				r, ok := short.Running("job")
				require.True(t, ok)
				<-r.Context().Done()
				require.Equal(t, most, time.Since(begun))
				time.Sleep(after)
				h, err := on[1].locker().History(t.Context(), "job")
				require.NoError(t, err)
				require.Equal(t, want, h[0].State)
				require.ErrorIs(t, lock.Unlock(t.Context()), schedlock.ErrTooLong)
			})
		})
	}
}

// J3: the leader is cut off without a word, or black-holed. Its elector ceases to report leadership a
// margin before the elector of the next one reports it.
func TestElectorOfACutOffLeader(t *testing.T) {
	t.Parallel()
	for how, away := range aways {
		t.Run(how, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				var electors []*gocronlock.Elector
				for _, d := range on {
					e, err := gocronlock.NewElector(electionOf(d))
					require.NoError(t, err)
					defer e.Close(within(t, time.Minute)) // it may be closed
					electors = append(electors, e)
					time.Sleep(time.Second)
				}
				old, next := electors[0], electors[1]
				leads := func(want ...error) {
					t.Helper()
					for i, e := range electors {
						require.ErrorIs(t, e.IsLeader(t.Context()), want[i])
					}
				}
				leads(nil, gocronlock.ErrNotLeading)
				time.Sleep(time.Hour) // between two renewals
				renewed := on[0].renewed()
				away(on[0].client)
				at := func(moment time.Time) { time.Sleep(time.Until(moment)) }
				at(renewed.Add(ttl - margin - 1))
				leads(nil, gocronlock.ErrNotLeading)
				at(renewed.Add(ttl - margin))
				leads(gocronlock.ErrNotLeading, gocronlock.ErrNotLeading)
				at(renewed.Add(ttl - 1))
				leads(gocronlock.ErrNotLeading, gocronlock.ErrNotLeading)
				at(renewed.Add(ttl + 1))
				leads(gocronlock.ErrNotLeading, nil)
				on[0].client.Heal()
				time.Sleep(time.Minute)
				leads(gocronlock.ErrNotLeading, nil)
				require.NoError(t, next.Close(t.Context()))
				time.Sleep(time.Minute)
				require.ErrorIs(t, next.IsLeader(t.Context()), gocronlock.ErrNotLeading)
				require.NoError(t, old.IsLeader(t.Context()), "it campaigns again")
			})
		})
	}
}
