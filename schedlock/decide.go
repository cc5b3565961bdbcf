package schedlock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/record"
)

// This file decides what a call does next about a tick, from what is known of the tick and from the
// request. Nothing here waits, reads a clock or asks etcd; claim.go executes the decisions.

// action is what a call does next.
type action int

const (
	send     action = iota + 1 // send the claim that is planned
	read                       // read why the tick cannot be claimed
	await                      // wait for an event of the job, and read again
	delegate                   // leave the waiting to request.standby, and skip the tick as Claimed
	skip                       // return the outcome: the tick is not started by this call
	refuse                     // return the error
)

// decision is an action, with what it needs.
type decision struct {
	action  action
	plan    plan    // of send
	outcome Outcome // of skip, with the owner of the run, or the pause
	owner   string
	paused  *Pause
	cooling bool  // of skip as StillRunning: no run is active, the job cools down
	err     error // of refuse
	taken   bool  // of refuse: another process has started the tick
}

// plan is how a claim is to be made, by what was read last.
type plan struct {
	tick     time.Time
	attempt  int
	mod      int64         // of the run record of the attempt before, or 0
	before   string        // the value of that record
	pause    time.Duration // after a failure, from seen on; 0 after a loss
	seen     time.Time     // when this call has seen the record first
	settings string        // in etcd, or ""
	value    string        // theirs, if it is not as this release writes them: it has further fields
}

// observed is what events have shown of a tick.
type observed struct {
	claimed bool
	by      string // the process that has claimed it
	changed bool   // an event of the job ended the wait for a further attempt
}

// unread decides from events alone, before a claim is sent: events cost nothing, and a claim without
// effect costs etcd a Txn. late is true if it is too late for the attempt.
func (r request) unread(p plan, h observed, late bool) decision {
	h.claimed = h.claimed && r.ordered()
	switch {
	case h.claimed && !r.repeats():
		return decision{action: skip, outcome: Claimed, owner: h.by}
	case h.claimed && p.attempt == 1, h.changed:
		return decision{action: read} // its run may have been lost
	case late:
		return decision{action: skip, outcome: Late}
	}
	return decision{action: send, plan: p}
}

// decide decides from what was read of a job. own is the lease of this process's session.
func (st state) decide(job string, tick time.Time, r request, own clientv3.LeaseID) decision {
	p := plan{tick: tick, attempt: 1}
	p.settings, p.value = st.settled()
	if len(st.run) > 0 {
		last, ok := record.DecodeRun(st.run[0].Value)
		active := len(st.lock) > 0 && st.lock[0].CreateRevision == st.run[0].ModRevision
		final := !ok || st.endedHere || !r.repeatable(last, active)
		switch {
		case final:
			return st.over(p, r, Claimed)
		case active && !r.timed():
			return st.skip(StillRunning) // another call of the same millisecond
		case active:
			return st.await(r)
		}
		p.attempt, p.mod, p.before = last.Attempt+1, st.run[0].ModRevision, string(st.run[0].Value)
		if last.State == record.RunFailed {
			p.pause = r.failed.pause
		}
	}
	switch {
	case p.attempt == 1 && st.startedElsewhere(r.asked):
		return decision{action: skip, outcome: Claimed}
	case st.foreign != "":
		return decision{action: refuse, err: fmt.Errorf("key %q is not a run record, and the job cannot start while it exists: delete it", st.foreign)}
	case !st.latest.IsZero():
		return st.over(p, r, Late)
	case p.attempt == 1 && len(st.near) > 0:
		return st.skip(Claimed)
	case len(st.pause) > 0:
		return st.skip(Paused)
	case len(st.lock) == 0 && len(st.cooldown) > 0 && p.attempt > 1:
		next := st.await(r)
		next.plan = p
		return next
	case len(st.lock)+len(st.cooldown) > 0:
		return st.skip(StillRunning)
	}
	if err := st.disagree(job, r, own); err != nil {
		return decision{action: refuse, err: err}
	}
	return decision{action: send, plan: p}
}

// disagree returns the *SettingsError of a request whose settings are not those in etcd, or nil.
func (st state) disagree(job string, r request, own clientv3.LeaseID) error {
	mine := r.shared()
	theirs, _ := st.settled()
	if _, ok := agree(mine, theirs); ok || reschedules(mine, theirs) && clientv3.LeaseID(st.settings[0].Lease) == own {
		return nil
	}
	return &SettingsError{Job: job, Mine: mine, Theirs: theirs}
}

// declined turns the decision about a tick that this call could not start for its settings, while it was free, into their
// error if the tick is no longer to be had: what others did about it would hide that this process starts none.
func (st state) declined(next decision, job string, r request, own clientv3.LeaseID) decision {
	if next.action == send || next.action == refuse {
		return next
	}
	if err := st.disagree(job, r, own); err != nil {
		return decision{action: refuse, err: err, taken: true}
	}
	return next
}

// orphaned returns the lease of a cooldown whose process has ended, as far as the leases of those that live show, and when it
// began; or 0. A new leader of etcd's begins each lease anew, and that process would have revoked it in time.
func (st state) orphaned(live []int64) (lease clientv3.LeaseID, began time.Time) {
	if len(st.lock) > 0 || len(st.cooldown) == 0 {
		return 0, began
	}
	claim, ok := record.DecodeLock(st.cooldown[0].Value)
	if !ok || claim.AtMS == 0 || slices.Contains(live, claim.Lease) {
		return 0, began
	}
	return clientv3.LeaseID(st.cooldown[0].Lease), time.UnixMilli(claim.AtMS)
}

// repeatable reports whether there may be another attempt after one that is recorded so. How an active one ends is not
// known: it may be lost or fail.
func (s settings) repeatable(last record.Run, active bool) bool {
	switch last.State {
	case record.RunRunning:
		if active {
			return last.Attempt <= max(s.retries, s.failed.most)
		}
		return last.Attempt <= s.retries
	case record.RunFailed:
		return last.Attempt <= s.failed.most && !last.Final
	}
	return false
}

// startedElsewhere reports whether another call has started what a request wants.
func (st state) startedElsewhere(asked requestedRun) bool {
	return asked.mod != 0 && (len(st.requested) == 0 || st.requested[0].ModRevision != asked.mod)
}

// over decides about a tick that can no longer be claimed. For a call without a fire time it means
// that another process's clock is ahead, and the call claims a later millisecond instead.
func (st state) over(p plan, r request, out Outcome) decision {
	if r.timed() {
		return st.skip(out)
	}
	if st.latest.After(p.tick) {
		p.tick = st.latest
	}
	return decision{action: send, plan: plan{tick: p.tick.Add(smallest), attempt: 1, settings: p.settings, value: p.value}}
}

// await decides about a tick that may be claimed again when a run or a cooldown ends.
func (st state) await(r request) decision {
	if r.standby != nil {
		return decision{action: delegate, outcome: Claimed, owner: st.owner(Claimed)}
	}
	return decision{action: await, owner: st.owner(StillRunning)}
}

// cooled replaces the wait for the end of a cooldown by the end of the call if it is too late for an attempt then: otherwise the end
// of a run that has failed would not be reported for as long.
func (st state) cooled(next decision, r request, now time.Time) decision {
	if next.action != await || next.plan.attempt == 0 {
		return next
	}
	claim, ok := record.DecodeLock(st.cooldown[0].Value)
	began := time.UnixMilli(min(claim.AtMS, now.UnixMilli())) // by another clock
	if !ok || claim.AtMS == 0 || !r.late(next.plan, began.Add(r.atLeast).Add(next.plan.pause)) {
		return next
	}
	return st.skip(Late)
}

// skip decides to return an outcome, with the owner of the run or the pause.
func (st state) skip(out Outcome) decision {
	next := decision{action: skip, outcome: out, owner: st.owner(out), cooling: out == StillRunning && len(st.lock) == 0}
	if out == Paused {
		next.paused = pauseOf(st.pause)
	}
	return next
}

// settled returns the settings in etcd, or "", and their value if this release writes another one for them.
func (st state) settled() (text, value string) {
	if len(st.settings) == 0 {
		return "", ""
	}
	text, value = settingsOf(st.settings[0]), string(st.settings[0].Value)
	if value == (record.Settings{Text: text}).Encode() {
		value = ""
	}
	return text, value
}

// owner returns the owner of the run, lock or cooldown that causes an outcome, or "".
func (st state) owner(out Outcome) string {
	var by []*mvccpb.KeyValue
	switch out {
	case Claimed:
		by = slices.Concat(st.run, st.near)
	case StillRunning:
		by = slices.Concat(st.lock, st.cooldown)
	}
	if len(by) == 0 {
		return ""
	}
	r, _ := record.DecodeLock(by[0].Value) // a Run has the same field
	return r.Owner
}

// afterRun reports whether this call may make another attempt after one with that result.
func (r request) afterRun(attempt int, res Result, err error) bool {
	switch {
	case r.single:
		return false
	case res.Outcome == Lost:
		return attempt <= r.retries && !errors.Is(err, ErrUnlocked)
	case res.Outcome == Failed:
		return attempt <= r.failed.most && res.Unconfirmed == nil && !errors.Is(err, ErrTooLong)
	}
	return false
}
