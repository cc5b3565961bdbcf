package schedlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
)

// K60: in a rolling deploy that makes a job rarer, the last claim of the former processes stores their plan. Those with the new
// schedule store theirs again within minutes: nothing waits for a fire time that no process has any more.
func TestPlanAfterARollingDeploy(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	h := clock(friday)
	operator, in := f.instance(nil, h.options()), f.instance(nil, schedlock.Settled(h.options()))
	former := f.instance(nil, schedlock.Settled(h.options()))
	job, err := former.Job("job", grid(5*time.Minute), nothing)
	require.NoError(t, err)
	job.Next(h.now())
	operator.planned(t, friday.Add(5*time.Minute))
	in.begin(t, "job")
	operator.planned(t, friday.AddDate(0, 0, 1))
	_, err = job.RunContext(ctx)
	require.NoError(t, err)
	operator.planned(t, friday.Add(5*time.Minute))
	require.NoError(t, former.sess.Close(ctx))

	look := func() {
		in.begin(t, "look-"+h.now().Format("15-04-05"))
		operator.waitPlan(t, "look-"+h.now().Format("15-04-05"), func(_ record.Plan, ok bool) bool { return ok })
	}
	look()
	h.set(friday.Add(30 * time.Second))
	look()
	operator.planned(t, friday.Add(5*time.Minute)) // while the former processes may be alive, plans do not alternate at once
	h.set(friday.Add(time.Minute + time.Second))
	look()
	operator.planned(t, friday.AddDate(0, 0, 1))
}

// K61: a plan that is removed although a process has the job, as by a Remove that has not seen it yet, is stored again.
func TestPlanRemovedBesideALiveProcess(t *testing.T) {
	t.Parallel()
	f := shared(t)
	h := clock(friday)
	operator, in := f.instance(nil, h.options()), f.instance(nil, schedlock.Settled(h.options()))
	in.begin(t, "job")
	operator.shows(t, h, friday.AddDate(0, 0, 1))
	_, err := operator.client.Delete(ctxT(t), operator.sess.NamespacePrefix()+"job/job/plan")
	require.NoError(t, err)
	operator.planned(t, friday.AddDate(0, 0, 1))
}
