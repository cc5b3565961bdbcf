package schedlock

import (
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/record"
)

// What is stored in place of a plan. Nothing here asks etcd or waits.

// renewed returns the plan to be stored in place of what is stored, and whether that differs. unput is what would be stored, or "",
// if etcd had had the space.
func renewed(stored []*mvccpb.KeyValue, unput string, want record.Plan, now time.Time, resumed bool) (plan record.Plan, mod int64, differs bool) {
	if len(stored) == 0 {
		if is, ok := record.DecodePlan([]byte(unput)); ok {
			want, _ = renew(is, want, now, resumed)
		}
		return want, 0, true
	}
	plan, differs = want, !later(stored[0])
	if is, ok := record.DecodePlan(stored[0].Value); ok {
		plan, differs = renew(is, want, now, resumed)
	}
	return plan, stored[0].ModRevision, differs
}

// renew returns the plan to be stored in place of another one, and whether that differs. When a list of fire times has run out
// without a start, the first of them is still due. One with an old stamp gets a new one. After a resumption nothing is due that
// came before it.
func renew(is, want record.Plan, now time.Time, resumed bool) (plan record.Plan, differs bool) {
	switch {
	case is.Former != "": // a fire time that no process had the job for is not due
		if sameSchedule(is.Former, want.Schedule) && is.DueMS != 0 && is.DueMS <= is.AliveMS && !resumed && !ahead(is, now) {
			want.DueMS = is.DueMS
		}
		return want, true
	case !sameSchedule(is.Schedule, want.Schedule), resumed && is.DueMS <= now.UnixMilli(), ahead(is, now):
		return want, true
	case is.Until() > now.UnixMilli() || want.Until() == 0 && is.Until() == 0:
		old := now.Sub(time.UnixMilli(is.AliveMS)) >= stampEach
		if old {
			is.AliveMS = want.AliveMS
		}
		return is, old
	}
	want.DueMS = is.DueMS
	return want, true
}

// ahead reports whether the clock of the process that has written a plan was ahead of this one's: what is due by it comes after
// that time.
func ahead(p record.Plan, now time.Time) bool { return !record.HasCome(p.AliveMS, now) }

// sameSchedule reports whether two plans are of one schedule. The fire times of one text differ if zone files do.
func sameSchedule(a, b string) bool {
	of, ok := parseFires(a)
	other, also := parseFires(b)
	return a == b || ok && also && of.agree(other)
}
