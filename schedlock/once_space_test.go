package schedlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A641: Close without a deadline returns although etcd refuses to put back the record of the attempt before a claim that is removed.
func TestCloseWhileAClaimCannotBeRemoved(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	opts := []schedlock.CallOption{schedlock.Tick(tick(1)), schedlock.Retries(1)}
	started, _ := do(ctx, a.Locker, "job", nil, opts...)
	got(t, started, "the first attempt")
	lease := a.sess.Lease()
	a.client.Cut()
	defer a.client.Heal()
	require.NoError(t, f.RevokeLease(ctx, lease))
	b.client.Inject(embedtest.Fault{Method: "Txn", Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace, Match: func(m string, msg any) bool {
		return isClaim(m, msg) && strings.Contains(string(msg.(*etcdserverpb.TxnRequest).Success[0].GetRequestPut().GetValue()), `"attempt":2`)
	}, After: func() { assert.NoError(t, f.SetNoSpace(ctx, true)) }})
	defer func() { require.NoError(t, f.SetNoSpace(ctx, false)) }()
	_, err := b.Do(ctx, "job", nothing, opts...)
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	shut := make(chan error, 1)
	go func() { shut <- b.sess.Close(context.WithoutCancel(ctx)) }()
	require.NoError(t, got(t, shut, "Close returns"))
}

// A640: the claim of saturday's tick is removed while etcd is out of space, and its plan with it. OnMisfire(Once) of the next process
// has missed that tick, whether the process of the claim has stored a plan since or not.
func TestOnceAfterAClaimThatIsRemovedWithoutSpace(t *testing.T) {
	t.Parallel()
	saturday := friday.AddDate(0, 0, 1)
	for name, stays := range map[string]bool{"no plan is stored": false, "a plan is stored": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := own(t)
			ctx := ctxT(t)
			h := clock(friday.Add(-time.Hour))
			in := f.instance(nil, schedlock.Settled(h.options()))
			job, err := in.Job("job", nine{}, nothing, schedlock.OnMisfire(schedlock.Once), schedlock.Retries(1), schedlock.LateBy(time.Hour))
			require.NoError(t, err)
			if stays {
				job.Next(h.now())
				in.waitPlan(t, "job", func(p record.Plan, ok bool) bool { return ok && p.DueMS == friday.UnixMilli() })
			}
			h.set(friday)
			_, err = job.RunContext(ctx)
			require.NoError(t, err)
			h.set(saturday)
			in.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCNoSpace, After: func() {
				assert.NoError(t, f.SetNoSpace(ctx, true))
				h.set(saturday.Add(2 * time.Hour))
			}})
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			res, _ := job.RunContext(short)
			require.Zero(t, res.Token)
			in.waitPlan(t, "job", func(_ record.Plan, ok bool) bool { return !ok })
			require.NoError(t, f.SetNoSpace(ctx, false))
			if stays {
				in.waitPlan(t, "job", func(p record.Plan, ok bool) bool { return ok })
				st, err := in.Status(ctx, "job")
				require.NoError(t, err)
				require.Equal(t, saturday, st.Plan.Due.UTC())
			}
			require.NoError(t, in.sess.Close(ctx))
			_, _, reported := f.begins(saturday.Add(3 * time.Hour))
			res = got(t, reported, "it has looked for what was missed")
			require.Equal(t, []any{schedlock.Ran, saturday}, []any{res.Outcome, res.Tick})
		})
	}
}
