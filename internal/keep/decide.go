package keep

import "time"

const (
	// mostIdle is how long a permit is kept idle at most. A try of another process that is refused
	// because of it writes nothing, so this process does not learn of it (W16 in
	// internal/proof/tested-failures.md).
	mostIdle = 100 * time.Millisecond
	// proofCounts is how long etcd's answer that no request waits is good for (W17).
	proofCounts = time.Second
	// trustCounts is how long a look at all clocks counts, by the monotonic one.
	trustCounts = time.Millisecond
)

// idleness is what decides whether a permit may stay in its process for the next caller.
type idleness struct {
	quiet   bool          // etcd has confirmed, less than proofCounts ago, that no request waits
	trusted bool          // the session's lease is
	age     time.Duration // since etcd has granted the permit
	idle    time.Duration // since its holder has released it; 0 if that is now
	lowered bool          // the limit was lowered since the grant: it may be exceeded
}

// stays reports whether a permit may stay for the next caller, by Options.Keep. One time counts for a permit,
// from its grant: no caller starts it again.
func (i idleness) stays(keep time.Duration) bool {
	return i.quiet && i.trusted && i.age < keep && i.idle < mostIdle
}

// passes reports whether a permit may go to a call that waits in its process, by Options.Handover. The same
// one time counts.
//
// Nor does any other process lose by a permit that passes while it might stay. A limit that is lowered
// stops the calls in the local queue, too.
func (i idleness) passes(handover, keep time.Duration) bool {
	return !i.lowered && (i.trusted && i.age < handover || i.stays(keep))
}
