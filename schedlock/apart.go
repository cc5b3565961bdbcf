package schedlock

import "time"

// Apart refuses a tick that comes less than d after another tick of the job that was claimed, whether
// that one's run is active, has ended or was lost: the outcome is Claimed, and the owner is that of
// the other tick. The Txn of the claim decides that, so of two processes that call at about the same
// time, with ticks by their own clocks, one starts. It is for callers that have a fire time of their
// own, such as lines of a crontab on several machines; d is shorter than the time between two of them,
// by what they may be early or late. Unlike AtLeast it needs no lease, reads the time between two
// ticks, and is no setting on which processes must agree. Further attempts at a tick are not affected.
func Apart(d time.Duration) CallOption {
	return callOption(func(r *request) error { r.apart = d; return checkLength("Apart", d) })
}
