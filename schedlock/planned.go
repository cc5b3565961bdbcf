package schedlock

import (
	"fmt"
	"time"

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
		if err := checkSchedule(schedule); err != nil {
			return fmt.Errorf("Planned: %w", err)
		}
		if late < 0 {
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
