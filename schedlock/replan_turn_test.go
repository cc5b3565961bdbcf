package schedlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// replans reports whether a Txn takes back a plan.
func replans(method string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	return ok && !isClaim(method, msg) && putsPlan(r)
}

func putsPlan(r *etcdserverpb.TxnRequest) bool {
	for _, op := range r.GetSuccess() {
		if strings.HasSuffix(string(op.GetRequestPut().GetKey()), "/plan") || putsPlan(op.GetRequestTxn()) {
			return true
		}
	}
	return false
}

// withdraws reports whether a Txn takes back a claim.
func withdraws(method string, msg any) bool {
	r, ok := msg.(*etcdserverpb.TxnRequest)
	return ok && !isClaim(method, msg) && len(r.Success) > 0 && strings.Contains(string(r.Success[0].GetRequestDeleteRange().GetKey()), "/run/")
}

// A272: two processes take back their claims of a tick in turn: the second one claims when the first one has given the tick back,
// and has not taken back its plan. The tick is due afterwards.
func TestPlanOfClaimsThatAreTakenBackInTurn(t *testing.T) {
	t.Parallel()
	saturday := friday.AddDate(0, 0, 1)
	for _, gone := range []bool{false, true} {
		t.Run(map[bool]string{false: "too late", true: "its caller has gone"}[gone], func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			claim := func(in instance, ctx context.Context) (schedlock.Result, error) {
				return in.Do(ctx, "job", nothing, schedlock.Tick(saturday), schedlock.LateBy(time.Hour),
					schedlock.Planned(schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: nine{}}, time.Hour))
			}
			late := func(do embedtest.Action, ahead time.Duration) (instance, *embedtest.Injection) {
				h := clock(saturday.Add(ahead))
				in := f.instance(nil, h.options())
				return in, in.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: do, After: func() { h.set(saturday.Add(2 * time.Hour)) }})
			}
			_, err := f.instance(nil, clock(friday).options()).Do(ctx, "job", nothing, schedlock.Tick(friday),
				schedlock.Planned(schedlock.Crontab{Text: "0 9 * * *", Zone: time.UTC, Schedule: nine{}}, time.Hour))
			require.NoError(t, err)
			do := embedtest.Pass
			if gone {
				do = embedtest.HoldResponse
			}
			first, claimed := late(do, time.Minute)
			second, _ := late(embedtest.Pass, 2*time.Minute)
			back := second.client.Inject(embedtest.Fault{Method: "Txn", Match: withdraws, Do: embedtest.HoldRequest})
			done, planned := make(chan struct{}), make(chan struct{})
			first.client.Inject(embedtest.Fault{Method: "Txn", Match: replans, Do: embedtest.Pass, Before: func() {
				held, cancel := context.WithCancel(ctx)
				go func() {
					defer close(done)
					defer cancel()
					_, err := claim(second, ctx)
					assert.NoError(t, err)
				}()
				_ = back.WaitHit(held)
			}, After: func() { close(planned) }})
			calls, end := context.WithCancel(ctx)
			defer end()
			if gone {
				go func() {
					if claimed.WaitHit(ctx) == nil {
						end()
					}
				}()
			}
			_, _ = claim(first, calls)
			got(t, planned, "the first process has taken back its plan")
			require.NoError(t, back.Release())
			got(t, done, "the second process is too late, or has found the tick claimed")
			operator := f.instance(nil, clock(saturday.Add(2*time.Hour)).options())
			require.Eventually(t, func() bool {
				st, err := operator.Status(ctx, "job")
				return err == nil && st.Last.Tick.Equal(friday) && st.Overdue(saturday.Add(2*time.Hour)).Equal(saturday.Add(time.Hour))
			}, soon, 20*time.Millisecond)
		})
	}
}
