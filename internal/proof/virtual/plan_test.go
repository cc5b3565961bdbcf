package virtual

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/schedlock"
)

// plansIn returns how many plans a request puts.
func plansIn(m etcdfake.Message) (n int64) {
	r, _ := m.Body.(*pb.TxnRequest)
	for _, op := range r.GetSuccess() {
		if strings.HasSuffix(string(op.GetRequestPut().GetKey()), "/plan") {
			n++
		}
	}
	return n
}

// K16: what a deploy writes: one plan for each job and one key for each process, and not one for each process and job.
// Where processes look at the same moment, some write in vain.
func TestPlansOfADeploy(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		jobs, processes int
		travel          time.Duration
		most            int64
	}{
		"without delay":    {20, 50, 0, 20},
		"2 ms on each way": {20, 50, 2 * time.Millisecond, 60},
		"K63: 200 jobs":    {200, 20, 2 * time.Millisecond, 300}, // 206 to 212, and 357 to 522 without what events show
	} {
		t.Run(name, func(t *testing.T) {
			processes := x.processes
			if testing.Short() {
				processes = 10
			}
			bubble(t, processes, func(t *testing.T, on []*desk) {
				var plans, users atomic.Int64
				for _, d := range on {
					d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
						plans.Add(plansIn(m))
						if r, ok := m.Body.(*pb.PutRequest); ok && strings.Contains(string(r.Key), "/jobs-of/") {
							users.Add(1)
						}
						if m.Method == "Txn" || m.Method == "Put" {
							return etcdfake.Fault{RequestDelay: x.travel, ResponseDelay: x.travel}
						}
						return etcdfake.Fault{}
					})
					l := d.locker()
					for n := range x.jobs {
						job, err := l.Job(fmt.Sprint("job-", n), schedlock.Periods(24*time.Hour), func(context.Context, *schedlock.Run) error { return nil })
						require.NoError(t, err)
						job.Next(time.Now())
					}
				}
				time.Sleep(10 * time.Second)
				require.EqualValues(t, processes, users.Load())
				require.GreaterOrEqual(t, plans.Load(), int64(x.jobs))
				require.LessOrEqual(t, plans.Load(), x.most)
				time.Sleep(2 * time.Minute)
				require.EqualValues(t, processes, users.Load())
				require.LessOrEqual(t, plans.Load(), x.most, "nothing has run out")
			})
		})
	}
}

// K19: the fire times of a job that no process claims run out, and are written again by one of those that have it, about
// once an hour; the one that no process has started stays due.
func TestPlanThatRunsOut(t *testing.T) {
	t.Parallel()
	bubble(t, 3, func(t *testing.T, on []*desk) {
		var plans atomic.Int64
		var all []*schedlock.Locker
		begun := time.Now()
		for _, d := range on {
			d.open(concurrency.SessionOptions{TTL: 5 * time.Minute}) // for hours
			d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
				plans.Add(plansIn(m))
				return etcdfake.Fault{}
			})
			l := d.locker()
			job, err := l.Job("job", schedlock.Periods(time.Minute), func(context.Context, *schedlock.Run) error { return nil })
			require.NoError(t, err)
			job.Next(time.Now())
			all = append(all, l)
		}
		time.Sleep(5 * time.Hour)
		st, err := all[0].Status(t.Context(), "job")
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), st.Plan.Next[0], 75*time.Minute, "it was written again within the last hour or so")
		require.WithinDuration(t, begun, st.Plan.Due, 2*time.Minute)
		require.GreaterOrEqual(t, plans.Load(), int64(5))
		require.LessOrEqual(t, plans.Load(), int64(10), "of three processes")
	})
}

// K26: each day a job of a fleet costs one write, the stamp of its plan, and one process lists the jobs, once an hour.
func TestStampsOfAFleet(t *testing.T) {
	t.Parallel()
	const processes, jobs = 3, 4
	bubble(t, processes, func(t *testing.T, on []*desk) {
		var plans, lists atomic.Int64
		for _, d := range on {
			d.open(concurrency.SessionOptions{TTL: 5 * time.Minute}) // for a day
			d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
				plans.Add(plansIn(m))
				if r, ok := m.Body.(*pb.RangeRequest); ok && strings.HasSuffix(string(r.Key), "/job/") {
					lists.Add(1)
				}
				return etcdfake.Fault{}
			})
			l := d.locker()
			for n := range jobs {
				job, err := l.Job(fmt.Sprint("job-", n), schedlock.Periods(300*24*time.Hour), func(context.Context, *schedlock.Run) error { return nil })
				require.NoError(t, err)
				job.Next(time.Now())
			}
		}
		time.Sleep(time.Minute)
		before := plans.Load()
		time.Sleep(25 * time.Hour)
		require.GreaterOrEqual(t, plans.Load()-before, int64(jobs))
		require.LessOrEqual(t, plans.Load()-before, int64(2*jobs), "of three processes")
		require.GreaterOrEqual(t, lists.Load(), int64(22))
		require.LessOrEqual(t, lists.Load(), int64(28), "of three processes")
	})
}
