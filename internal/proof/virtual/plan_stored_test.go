package virtual

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/schedlock"
)

// begins has a process use the job.
func (d *desk) begins(l *schedlock.Locker, every time.Duration) *schedlock.Job {
	d.t.Helper()
	job, err := l.Job("job", schedlock.Periods(every), noWork)
	require.NoError(d.t, err)
	job.Next(time.Now())
	return job
}

// dueIn returns how long it is until the job is due by its plan.
func dueIn(t *testing.T, l *schedlock.Locker) time.Duration {
	t.Helper()
	st, err := l.Status(t.Context(), "job")
	require.NoError(t, err)
	require.NotNil(t, st.Plan)
	return time.Until(st.Plan.Due)
}

// K60: in a rolling deploy that makes a job rarer, the last claim of the former processes stores their plan. Those with the new
// schedule store theirs again within minutes: nothing waits for a fire time that no process has any more.
func TestPlanAfterARollingDeploy(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		former, in := on[0], on[1]
		job := former.begins(former.locker(), 5*time.Minute)
		l := in.locker()
		time.Sleep(3 * time.Second)
		require.LessOrEqual(t, dueIn(t, l), 5*time.Minute)
		in.begins(l, 24*time.Hour)
		time.Sleep(3 * time.Second)
		require.Greater(t, dueIn(t, l), time.Hour, "the new process stores its own at once")
		_, err := job.RunContext(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, dueIn(t, l), 5*time.Minute)
		former.close(time.Second)
		time.Sleep(30 * time.Second)
		require.LessOrEqual(t, dueIn(t, l), 5*time.Minute, "while the former processes may be alive, plans do not alternate at once")
		time.Sleep(2 * time.Minute)
		require.Greater(t, dueIn(t, l), time.Hour)
	})
}

// K61: a plan that is removed although a process has the job, as by a Remove that has not seen the job yet, is stored again: within
// seconds of the event, and after a gap of the watch, which shows no event, within about two minutes.
func TestPlanRemovedBesideALiveProcess(t *testing.T) {
	t.Parallel()
	for name, gap := range map[string]bool{"the watch shows it": false, "in a gap of the watch": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				operator, d := on[0], on[1]
				d.begins(d.locker(), 24*time.Hour)
				time.Sleep(time.Minute)
				require.Len(t, operator.jobKeys("/plan"), 1)
				soon := 3 * time.Second
				if gap {
					d.client.Cut()
					synctest.Wait()
					soon = 130 * time.Second
				}
				resp, err := operator.client.Delete(t.Context(), root+"job/job/plan")
				require.NoError(t, err)
				require.EqualValues(t, 1, resp.Deleted)
				if gap {
					other, err := operator.client.Put(t.Context(), "/other", "")
					require.NoError(t, err)
					_, err = operator.client.Compact(t.Context(), other.Header.Revision, clientv3.WithCompactPhysical())
					require.NoError(t, err)
					d.client.Heal()
				}
				require.Empty(t, operator.jobKeys("/plan"))
				time.Sleep(soon)
				require.Len(t, operator.jobKeys("/plan"), 1)
			})
		})
	}
}
