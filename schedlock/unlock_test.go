package schedlock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A269: Unlock does not get etcd's answer, and the run ends by itself meanwhile. Unlock then ends its cooldown, too, or says that it
// is left.
func TestUnlockWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, only := range []bool{true, false} {
		for _, made := range []bool{true, false} {
			t.Run(fmt.Sprintf("only this run %v, made %v", only, made), func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				ctx := ctxT(t)
				a, b := f.instance(nil, nil), f.instance(nil, nil)
				end := make(chan struct{}, 1)
				started, done := do(ctx, a.Locker, "job", end, schedlock.Tick(tick(1)), schedlock.AtLeast(time.Hour))
				run := got(t, started, "it starts")
				fault := embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Match: isRemoval}
				if !made {
					fault.Do, fault.Before = embedtest.FailWith, func() {
						end <- struct{}{}
						got(t, done, "it ends")
					}
				}
				lost := b.client.Inject(fault)
				var opts []schedlock.UnlockOption
				if only {
					opts = append(opts, schedlock.OnlyRun(run.Token()))
				}
				err := b.Unlock(ctx, "job", "for a test", opts...)
				require.Equal(t, 1, lost.Hits())
				left := only && !made
				if left {
					require.ErrorIs(t, err, schedlock.ErrNotRunning)
					require.ErrorContains(t, b.Unlock(ctx, "job", "for a test", opts...), "cools down")
				} else {
					require.NoError(t, err)
				}
				st, err := b.Status(ctx, "job")
				require.NoError(t, err)
				require.Equal(t, left, st.CoolingDown)
				require.Equal(t, made, st.Last.State == schedlock.RunUnlocked)
			})
		}
	}
}

// A274: the cooldown of a run that was unlocked has ended with it. A tick that came within AtLeast while no process was alive was
// missed, and not skipped.
func TestOnceAfterAnUnlock(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday)
	least, most := schedlock.AtLeast(48*time.Hour), schedlock.AtMost(100*time.Hour)
	a := f.instance(nil, h.options())
	started, done := do(ctx, a.Locker, "job", nil, schedlock.Tick(friday), ofNine, schedlock.Retries(1), least, most)
	got(t, started, "it starts")
	require.NoError(t, a.Unlock(ctx, "job", "it hangs"))
	got(t, done, "it ends")
	saturday := friday.AddDate(0, 0, 1)
	_, _, reported := f.begins(saturday.Add(time.Hour), least, most)
	res := got(t, reported, "what was missed")
	require.Equal(t, []any{schedlock.Ran, saturday}, []any{res.Outcome, res.Tick})
}

// A271: etcd does not confirm the record of a run's end, since it is out of space or its answer was lost, and an operator unlocks
// the run before it is sent again: the end is not recorded, and the call says so, or a warning if it has returned. Otherwise the
// lock went with the record.
func TestUnlockOfAnEndInDoubt(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]embedtest.Fault{
		"no space":       {Do: embedtest.FailWith, Err: rpctypes.ErrGRPCNoSpace},
		"the request":    {Do: embedtest.FailWith},
		"the answer":     {Do: embedtest.DropResponse},
		"fills the disk": {Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			in, lines := f.logged(&concurrency.SessionOptions{TTL: 300 * time.Second, ReleaseTimeout: time.Minute}, nil)
			other := f.instance(nil, nil)
			want := schedlock.ErrNotRunning
			unlock := func() {
				if err := other.Unlock(ctx, "job", "it hangs"); err != want { //nolint:errorlint // nil, or as below
					require.ErrorIs(t, err, want)
				}
			}
			fault.Method, fault.Match, fault.After = "Txn", isFinish, unlock
			if fault.Do == embedtest.FailWith {
				fault.Before, fault.After, want = unlock, nil, nil
			}
			lost := in.client.Inject(fault)
			res, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(1)))
			require.Equal(t, 1, lost.Hits())
			rec, getErr := other.Get(ctx, "job", tick(1))
			require.NoError(t, getErr)
			require.Equal(t, want == nil, rec.State == schedlock.RunUnlocked)
			require.NoError(t, in.sess.Close(ctx))
			switch {
			case fault.Err != nil: // a refusal is reported at once
				unconfirmed(t, res)
				require.Equal(t, want == nil, slices.Contains(messages(lines), "a run was lost before its end was recorded"))
			case want != nil:
				require.NoError(t, err)
				require.NoError(t, res.Unconfirmed)
				require.Equal(t, schedlock.Ran, res.Outcome)
			default:
				require.ErrorIs(t, err, schedlock.ErrUnlocked)
				require.ErrorContains(t, err, "it hangs")
				require.NoError(t, res.Unconfirmed)
				require.Equal(t, schedlock.Lost, res.Outcome)
			}
		})
	}
}

// Unlock ends a run before its process has the answer to the claim: the run ends with ErrUnlocked all the same.
func TestUnlockBeforeTheAnswerToAClaim(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	in, other := f.instance(nil, nil), f.instance(nil, nil)
	records := make(chan schedlock.Record, 1000)
	go func() {
		for r, err := range in.Watch(ctx, "job") {
			if err != nil || r.State == schedlock.RunUnlocked {
				close(records)
				return
			}
			records <- r
		}
	}()
	n := 0
	for ; len(records) == 0; n++ { // until the watch is open
		_, err := in.Do(ctx, "job", nothing, schedlock.Tick(tick(n)))
		require.NoError(t, err)
	}
	claimed := in.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldResponse})
	_, done := do(ctx, in.Locker, "job", nil, schedlock.Tick(tick(n)))
	require.NoError(t, claimed.WaitHit(ctx))
	require.NoError(t, other.Unlock(ctx, "job", "it hangs"))
	for range records { // until the event of that has arrived
		continue
	}
	require.NoError(t, claimed.Release())
	end := got(t, done, "it ends")
	require.Equal(t, schedlock.Lost, end.res.Outcome)
	require.ErrorIs(t, end.err, schedlock.ErrUnlocked)
	require.ErrorContains(t, end.err, "it hangs")
}
