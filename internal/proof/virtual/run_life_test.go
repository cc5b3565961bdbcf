package virtual

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

func (d *desk) locker() *schedlock.Locker {
	d.t.Helper()
	l, err := schedlock.New(d.session, nil)
	require.NoError(d.t, err)
	return l
}

// fireTime is the option for the nth fire time. All that tests use have passed.
func fireTime(n int) schedlock.CallOption {
	return schedlock.Tick(time.Now().Truncate(24 * time.Hour).Add(time.Duration(n-3600) * time.Second))
}

func noWork(context.Context, *schedlock.Run) error { return nil }

// jobResult is what a Do in a goroutine has returned, and when.
type jobResult struct {
	res schedlock.Result
	err error
	at  time.Time
}

// doing calls Do in a goroutine. begun receives the run. Its function waits for end or, unless it is
// deaf, for the end of its context.
func doing(ctx context.Context, l *schedlock.Locker, deaf bool, end <-chan struct{}, opts ...schedlock.CallOption) (begun <-chan *schedlock.Run, done <-chan jobResult) {
	runs, results := make(chan *schedlock.Run, 1), make(chan jobResult, 1)
	go func() {
		res, err := l.Do(ctx, "job", func(ctx context.Context, r *schedlock.Run) error {
			runs <- r
			if deaf {
				<-end
				return nil
			}
			select {
			case <-end:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, opts...)
		results <- jobResult{res, err, time.Now()}
	}()
	return runs, results
}

// jobKeys are the keys of jobs that contain a text.
func (d *desk) jobKeys(part string) (keys []string) {
	for _, key := range d.server.Keys(root) {
		if strings.Contains(key, "/job/") && strings.Contains(key, part) {
			keys = append(keys, key)
		}
	}
	return keys
}

// renewed returns when the session of a process has renewed its lease last, if all renewals arrive.
func (d *desk) renewed() time.Time {
	return d.begun.Add(time.Since(d.begun).Truncate(renews))
}

// J4: renewals do not get through. The run's context ends, with ErrLost, a margin before etcd deletes
// the lock; for hooks it was lost with the session.
func TestContextEndsBeforeTheLock(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d, recorder := on[0], &testkit.Recorder{}
		d.open(concurrency.SessionOptions{Hooks: recorder.Hooks()})
		begun, done := doing(t.Context(), d.locker(), false, nil, fireTime(1))
		r := came(t, begun, "it starts")
		time.Sleep(30*time.Minute + renews/2)
		require.NoError(t, r.Err())
		renewed := d.renewed()
		d.slow("LeaseKeepAlive", 1<<30, etcdfake.Fault{DropRequest: true})
		select {
		case <-r.Context().Done():
		case <-time.After(time.Hour):
			require.FailNow(t, "its context does not end")
		}
		require.Equal(t, renewed.Add(ttl-margin), time.Now())
		require.ErrorIs(t, context.Cause(r.Context()), schedlock.ErrLost)
		require.ErrorIs(t, r.Err(), schedlock.ErrLost)
		var lost *schedlock.LostError
		require.ErrorAs(t, r.Err(), &lost)
		require.Equal(t, []any{"job", 1, r.Token()}, []any{lost.Job, lost.Attempt, lost.Token})
		require.Equal(t, schedlock.Lost, came(t, done, "the call returns").res.Outcome)
		require.Contains(t, recorder.Texts("job"), "run: lost (session)")
		time.Sleep(time.Until(renewed.Add(ttl - 1)))
		require.Len(t, d.jobKeys("/lock"), 1)
		time.Sleep(time.Nanosecond)
		require.Empty(t, d.jobKeys("/lock"))
	})
}

// J5: one renewal fails. The next one is made nevertheless, and the run continues.
func TestOneFailedRenewal(t *testing.T) {
	t.Parallel()
	for name, fate := range map[string]etcdfake.Fault{
		"refused": {Err: etcdfake.ErrUnavailable, DropRequest: true},
		"lost":    {DropRequest: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				end := make(chan struct{})
				begun, done := doing(t.Context(), d.locker(), false, end, fireTime(1))
				r := came(t, begun, "it starts")
				var struck atomic.Pointer[time.Time]
				d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					if m.Method != "LeaseKeepAlive" || m.Response || struck.Load() != nil {
						return etcdfake.Fault{}
					}
					now := time.Now()
					struck.Store(&now)
					return fate
				})
				before := r.Deadline()
				time.Sleep(ttl)
				require.Equal(t, d.begun.Add(renews), *struck.Load())
				require.True(t, r.Deadline().After(before))
				require.NoError(t, r.Check(t.Context()))
				time.Sleep(30 * time.Minute)
				require.NoError(t, r.Check(t.Context()))
				close(end)
				require.NoError(t, came(t, done, "it ends").err)
			})
		})
	}
}

// A crashed process: without Retries its tick is lost, and shown as that; with them it is
// started again by a call on standby, after the TTL and not after AtMost.
func TestRunOfACrashedProcess(t *testing.T) {
	t.Parallel()
	for _, retries := range []int{0, 1} {
		t.Run(fmt.Sprint("retries ", retries), func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				b := on[1].locker()
				opts := []schedlock.CallOption{fireTime(1), schedlock.Retries(retries), schedlock.AtMost(time.Hour)}
				begun, _ := doing(t.Context(), on[0].locker(), false, nil, opts...)
				r := came(t, begun, "it starts")
				time.Sleep(2 * time.Second)
				end := make(chan struct{})
				close(end)
				again, done := doing(within(t, 2*time.Hour), b, false, end, opts...)
				on[0].client.Stall()
				<-r.Context().Done() // it is lost, or AtMost has passed
				require.ErrorIs(t, r.Err(), schedlock.ErrLost)
				x := came(t, done, "the other call returns")
				require.NoError(t, x.err)
				if retries == 0 {
					require.Equal(t, schedlock.Claimed, x.res.Outcome)
					time.Sleep(time.Until(on[0].begun.Add(ttl)))
					require.Empty(t, on[1].jobKeys("/lock"))
					h, err := b.History(t.Context(), "job")
					require.NoError(t, err)
					require.Equal(t, schedlock.RunLost, h[0].State)
					return
				}
				require.Equal(t, []any{schedlock.Ran, 2}, []any{x.res.Outcome, x.res.Attempt})
				require.WithinRange(t, x.at, on[0].begun.Add(ttl), on[0].begun.Add(ttl+time.Second))
				require.Greater(t, came(t, again, "the second start").Token(), r.Token())
				h, err := b.History(t.Context(), "job")
				require.NoError(t, err)
				require.Equal(t, []any{schedlock.RunDone, 2}, []any{h[0].State, h[0].Attempt})
			})
		})
	}
}

// After a crash a job whose AtMost is an hour starts its next tick after the TTL.
func TestNextTickAfterAKill(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		begun, _ := doing(t.Context(), on[0].locker(), false, nil, fireTime(0), schedlock.AtMost(time.Hour))
		came(t, begun, "it starts")
		time.Sleep(7 * time.Second) // renewed 5 s after the beginning
		on[0].client.Stall()
		b := on[1].locker()
		for n := 1; ; n++ {
			res, err := b.Do(t.Context(), "job", noWork, fireTime(n), schedlock.AtMost(time.Hour))
			require.NoError(t, err)
			if res.Outcome == schedlock.Ran {
				break
			}
			require.Equal(t, schedlock.StillRunning, res.Outcome)
			require.Less(t, time.Since(on[0].begun), time.Hour)
			time.Sleep(100 * time.Millisecond)
		}
		free := on[0].begun.Add(renews + ttl)
		require.WithinRange(t, time.Now(), free, free.Add(time.Second))
	})
}

// J6: a process is stopped past its TTL, another starts the next tick, and the first one
// runs on and finishes. Its end reports that it was lost, and changes nothing.
func TestFinishAfterTheTTL(t *testing.T) {
	t.Parallel()
	for how, away := range aways {
		t.Run(how, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				resume, end := make(chan struct{}), make(chan struct{})
				begun, done := doing(t.Context(), on[0].locker(), true, resume, fireTime(1))
				old := came(t, begun, "it starts")
				away(on[0].client)
				time.Sleep(ttl)
				require.Empty(t, on[1].jobKeys("/lock"))
				b := on[1].locker()
				begun, next := doing(t.Context(), b, false, end, fireTime(2))
				run := came(t, begun, "the next one starts")
				require.ErrorIs(t, old.Err(), schedlock.ErrLost, "its context ended before that")
				on[0].client.Heal()
				close(resume)
				x := came(t, done, "it ends")
				require.ErrorIs(t, x.err, schedlock.ErrLost)
				require.Equal(t, schedlock.Lost, x.res.Outcome)
				time.Sleep(time.Minute)
				require.NoError(t, run.Check(t.Context()))
				h, err := b.History(t.Context(), "job")
				require.NoError(t, err)
				require.Equal(t, []schedlock.State{schedlock.RunActive, schedlock.RunLost}, []schedlock.State{h[0].State, h[1].State})
				close(end)
				require.NoError(t, came(t, next, "the next one ends").err)
			})
		})
	}
}
