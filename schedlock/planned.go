package schedlock

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/record"
)

// Planned stores the plan of the job with the claim of this call, in the same Txn: the schedule by which the calls are made. It
// is for jobs that no process has between two ticks, such as commands that cron starts, and for other callers of Do that have a schedule.
// The job has a next fire time then, and EtcdkitJobNotStarted rings if no call starts it in time. late is by
// how much a call may come after a fire time: the time in the metric is later by as much. EtcdkitJobGone means nothing for such a
// job while its plan counts: until a week after the first fire time without a start, or until Forget.
//
// The schedule decides no tick and is no setting on which processes must agree. It is asked in its own zone, see Crontab, and without
// one in UTC. Before the first claim there is no plan.
func Planned(schedule Schedule, late time.Duration) CallOption {
	return callOption(func(r *request) error {
		switch {
		case schedule == nil:
			return invalid("Planned: the schedule is nil")
		case late < 0:
			return invalid("Planned: late, %v, is negative", late)
		}
		r.times, r.called, r.callLate = &timetable{schedule: schedule, zone: time.UTC}, true, late
		return nil
	})
}

// plan returns the plan that a claim stores. It begins after the cooldown, whose ticks are skipped on purpose.
func (r request) plan(c *claimed) record.Plan {
	from := c.tick
	if cooled := time.UnixMilli(c.record.StartMS).Add(r.atLeast); r.atLeast > 0 && cooled.After(from) {
		from = cooled
	}
	p := r.times.plan(from)
	p.Called, p.LateMS, p.AliveMS = r.called, r.callLate.Milliseconds(), c.record.StartMS
	return p
}

// planBefore returns what puts back the plan that a claim has replaced, by the answer to what was put with it.
func (k *claim) planBefore(also []*etcdserverpb.ResponseOp) []clientv3.Op {
	for _, r := range also {
		within := r.GetResponseTxn()
		if within == nil || within.Succeeded { // or it is of a later release, and was not replaced
			continue
		}
		if kvs := within.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			return []clientv3.Op{clientv3.OpPut(k.job.keys.Plan(), string(kvs[0].Value))}
		}
		return []clientv3.Op{clientv3.OpDelete(k.job.keys.Plan())}
	}
	return nil
}

// replan takes back the plan of a claim whose function was not called: otherwise its tick would count as started, and
// nothing would show that it was not. If no answer has said what was stored before, the tick is due; before a further
// attempt, that of the first one stays, whose tick has come.
func (k *claim) replan(ctx context.Context, c *claimed) error {
	put := c.planned
	if put == nil && c.attempt == 1 && c.plan != "" {
		p, _ := record.DecodePlan([]byte(c.plan))
		p.DueMS = c.tick.UnixMilli()
		put = []clientv3.Op{clientv3.OpPut(k.job.keys.Plan(), p.Encode())}
	}
	if put == nil {
		return nil
	}
	_, err := repeat(ctx, k.etcd, func(call context.Context) (*clientv3.TxnResponse, error) {
		return k.kv.Txn(call).If(clientv3.Compare(clientv3.Value(k.job.keys.Plan()), "=", c.plan)).Then(put...).Commit()
	})
	return err
}
