package schedlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A211: a claim whose function is not called, since it has become too late or its caller has gone, takes back the plan that
// it has stored: its tick has not started, and is overdue.
func TestPlanOfAClaimThatIsTakenBack(t *testing.T) {
	t.Parallel()
	saturday := friday.AddDate(0, 0, 1)
	for name, what := range map[string]embedtest.Action{
		"answered": embedtest.Pass, "not answered": embedtest.DropResponse, "its caller has gone": embedtest.HoldResponse,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			h := clock(friday.Add(time.Minute))
			operator, in := f.instance(nil, h.options()), f.instance(nil, h.options())
			planned := schedlock.Planned(schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: nine{}}, time.Hour)
			res, err := in.Do(ctx, "job", nothing, schedlock.Tick(friday), planned)
			require.NoError(t, err)
			require.Equal(t, schedlock.Ran, res.Outcome)
			h.set(saturday.Add(time.Minute))
			inj := in.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: what, After: func() { h.set(saturday.Add(2 * time.Hour)) }})
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			if what == embedtest.HoldResponse {
				go func() {
					if inj.WaitHit(ctx) == nil {
						cancel()
					}
				}()
			}
			res, err = in.Do(short, "job", nothing, schedlock.Tick(saturday), schedlock.LateBy(time.Hour), planned)
			if what != embedtest.HoldResponse {
				require.NoError(t, err)
			}
			require.Zero(t, res.Token)
			require.Equal(t, 1, inj.Hits())
			h.set(saturday.Add(2 * time.Hour))
			require.Eventually(t, func() bool {
				st, err := operator.Status(ctx, "job")
				return err == nil && st.Plan.Due.Equal(saturday) && st.Overdue(h.now()).Equal(saturday.Add(time.Hour))
			}, soon, 20*time.Millisecond)
			f.NoKeys("/lock")
		})
	}
}

// A211: the first claim of a job is taken back: there is no plan, as before it.
func TestNoPlanOfAFirstClaimThatIsTakenBack(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday.Add(time.Minute))
	in := f.instance(nil, h.options())
	inj := in.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Skip: 1, After: func() { h.set(friday.Add(2 * time.Hour)) }})
	res, err := in.Do(ctx, "job", nothing, schedlock.Tick(friday), schedlock.LateBy(time.Hour),
		schedlock.Planned(schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: nine{}}, time.Hour))
	require.NoError(t, err)
	require.Equal(t, schedlock.Late, res.Outcome)
	require.Equal(t, 1, inj.Hits())
	f.NoKeys("/plan")
}
