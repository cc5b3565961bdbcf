package schedlock

import (
	"cmp"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/record"
)

// This file decides what a call does next about a tick, from what it knows and what it was asked.
// Nothing here waits, reads a clock or asks etcd: claim.go does as decided.

// action is what a call does next.
type action int

const (
	send     action = iota + 1 // send the claim that is planned
	read                       // read what is in the way of the claim
	await                      // wait for an event of the job, and read again
	delegate                   // have request.aside wait, and skip the tick as Claimed
	skip                       // return the outcome: the tick is not started by this call
	refuse                     // return the error
)

// decision is an action, with what it needs.
type decision struct {
	action  action
	plan    plan    // of send
	outcome Outcome // of skip, with the process that is in the way, or the pause
	holder  string
	paused  *Pause
	err     error // of refuse
}

// plan is how a claim is to be made, by what was read last.
type plan struct {
	tick     time.Time
	attempt  int
	mod      int64  // of the run record of the attempt before, or 0
	before   string // and the record
	settings string // as they are stored, or ""
}

// heard is what events have shown of a tick.
type heard struct {
	claimed bool
	by      string // the process that has claimed it
	changed bool   // an event of the job came while the call waited for a further attempt
}

// unread decides from events alone, before a claim is sent: they cost nothing, and a claim that has
// no effect costs etcd a Txn. late says that it is too late to start the attempt.
func (r request) unread(p plan, h heard, late bool) decision {
	h.claimed = h.claimed && r.ordered()
	switch {
	case h.claimed && r.retries == 0:
		return decision{action: skip, outcome: Claimed, holder: h.by}
	case h.claimed && p.attempt == 1, h.changed:
		return decision{action: read} // the run may have been lost
	case late:
		return decision{action: skip, outcome: Late}
	}
	return decision{action: send, plan: p}
}

// decide decides from what was read of a job. own is the lease of this process's session.
func (st state) decide(job string, tick time.Time, r request, own clientv3.LeaseID) decision {
	p := plan{tick: tick, attempt: 1, settings: st.settled()}
	if len(st.run) > 0 {
		last, ok := record.DecodeRun(st.run[0].Value)
		final := !ok || last.State != record.RunRunning || last.Attempt > r.retries || st.endedHere
		active := len(st.lock) > 0 && st.lock[0].CreateRevision == st.run[0].ModRevision
		switch {
		case final:
			return st.over(p, r, Claimed)
		case active && !r.timed():
			return st.skip(StillRunning) // another call of the same millisecond
		case active:
			return st.await(r)
		}
		p.attempt, p.mod, p.before = last.Attempt+1, st.run[0].ModRevision, string(st.run[0].Value)
	}
	switch {
	case st.foreign != "":
		return decision{action: refuse, err: fmt.Errorf("key %q is not a run record, and the job cannot start while it exists: delete it", st.foreign)}
	case !st.latest.IsZero():
		return st.over(p, r, Late)
	case len(st.pause) > 0:
		return st.skip(Paused)
	case len(st.lock) > 0:
		return st.skip(StillRunning)
	case len(st.cooldown) > 0 && p.attempt > 1:
		return st.await(r)
	case len(st.cooldown) > 0:
		return st.skip(StillRunning)
	}
	mine := r.shared()
	_, ok := agree(mine, p.settings)
	if !ok && !(reschedules(mine, p.settings) && clientv3.LeaseID(st.settings[0].Lease) == own) {
		return decision{action: refuse, err: &SettingsError{Job: job, Mine: mine, Theirs: p.settings}}
	}
	return decision{action: send, plan: p}
}

// over decides about a tick that can be claimed no more. A call without a fire time has met another
// process's clock, and takes the next millisecond instead.
func (st state) over(p plan, r request, out Outcome) decision {
	if r.timed() {
		return st.skip(out)
	}
	if st.latest.After(p.tick) {
		p.tick = st.latest
	}
	return decision{action: send, plan: plan{tick: p.tick.Add(smallest), attempt: 1, settings: p.settings}}
}

// await decides about a tick that may come back, when a run or a cooldown ends.
func (st state) await(r request) decision {
	if r.aside != nil {
		return decision{action: delegate, outcome: Claimed, holder: st.holder(Claimed)}
	}
	return decision{action: await, holder: st.holder(StillRunning)}
}

// skip returns an outcome, with the process that is in the way or the pause.
func (st state) skip(out Outcome) decision {
	next := decision{action: skip, outcome: out, holder: st.holder(out)}
	if out == Paused {
		next.paused = pauseOf(st.pause)
	}
	return next
}

// settled returns the settings as they are stored, or "".
func (st state) settled() string {
	if len(st.settings) == 0 {
		return ""
	}
	return cmp.Or(string(st.settings[0].Value), "none")
}

// holder returns the name of the process that is in the way, or "".
func (st state) holder(out Outcome) string {
	var by [][]*mvccpb.KeyValue
	switch out {
	case Claimed:
		by = append(by, st.run)
	case StillRunning:
		by = append(by, st.lock, st.cooldown)
	}
	for _, kvs := range by {
		if len(kvs) > 0 {
			r, _ := record.DecodeLock(kvs[0].Value) // a Run has the same field
			return r.Holder
		}
	}
	return ""
}
