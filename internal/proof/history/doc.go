// Package history records what a run of a test did and saw, so that checkers can
// judge it afterwards, and again from a file.
//
// A history is a list of flat events, one JSON object per line. Each is written
// by one client, and nothing is changed once it is written. All times are
// nanoseconds of the host's CLOCK_MONOTONIC, which all processes of a host share
// and no process can set: histories of several processes merge by sorting. In a bubble of
// testing/synctest a recorder stamps with the bubble's clock (Virtual).
//
// # What is recorded
//
//	call, return       an operation: name, gate, weight, ID, …; ok, fail or unknown
//	granted, held,     the belief of one holder: from when it learned that it has
//	ended              the permit, when that was last confirmed, and why it ended
//	effect             a write to something that permits protect, accepted or refused
//	put, delete        what a Tap saw in etcd, with revision, version and lease
//	begin, finish      a nemesis at work
//	count, mark, set   numbers, phases of the run, settings
//	finding            what the run itself has seen to be wrong
//
// A Recorder takes events from any number of goroutines. The usual pattern:
//
//	c := recorder.Client("c3")
//	call := c.Call(history.Event{Name: history.Acquire, Gate: "semaphore/render", Weight: 2})
//	p, err := sem.Acquire(ctx, concurrency.Weight(2), concurrency.Note(call.Tag()))
//	if err != nil {
//		call.Return(history.Event{Outcome: history.Fail, Error: err.Error()})
//		return
//	}
//	belief := call.Granted(p.Token())
//	for work() && belief.Check(p) {
//	}
//	belief.End(history.Released)
//	rel := c.Call(history.Event{Name: history.Release, Gate: "semaphore/render", Token: p.Token()})
//	rel.Done(p.Release(ctx), outcome.Definite)
//
// # What makes a belief exact
//
// The scheduler can delay every stamp. So every stamp errs on
// the side that hides a fault, never on the side that invents one: a grant is
// stamped after the call has returned; Check stamps before it asks, and only if
// the answer is yes; a release is stamped before it is called. A belief lasts from
// its granted event to the last time at which it was confirmed. With a Check every
// few milliseconds the interval is exact to that.
//
// # What checkers rely on
//
//   - A session's Owner is the name of the client that records for it, and the Note
//     of a request is the Tag of its call: so a key is traced to its call even if
//     its response was lost. Open and Close are calls too, with their Lease.
//   - The key of a permit can serve several calls of its process (SemaphoreOptions.Keep and
//     Handover). An acquire for such a permit has Attr["shared"], and no Note traces the key to
//     it. The Token of a Release is then that of its return: 0 if the key serves on.
//   - A returned Fail means that the caller has nothing; Cause is Full if it was
//     refused for want of room. A SetLimit, Evict or Release whose answer did not
//     come is Unknown. An acquire with TakeOver has Attr["takeover"]; of a Status, Rev
//     is the revision and N the weight of the holders. A call with a context that ends
//     says when, in Until.
//   - Every nemesis that touches etcd's state names what it strikes: Lease if it
//     revokes one, Attr["key"] if it deletes, overwrites or plants a key (the whole
//     key), Client if it kills or stops one. What is struck that way is excused, and
//     reported. It finishes when what it did has certainly been applied, or never.
//   - An effect names its register in Attr["register"], how it was protected in
//     Attr["mode"] (ModeGuard, ModeToken), and the Token. In mode guard, Rev is the
//     Txn's revision; if the answer was lost, Attr["value"] is what was put at the
//     register's key, below the tapped prefix. In mode token, N numbers the attempts
//     in the register's own order.
//   - Complete the tap before each of the marks healthy, idle and drained.
//
// # Adding operations and checkers
//
// The sets of kinds, operations, causes and counters are open: Kind and Name are
// strings, and Attr carries what no field fits. Another package's harness names
// its own operations ("job.claim", "attempt.complete"), uses the fields for what
// they say, and Attr for the rest. Checkers ignore kinds and names that they do
// not know; they are values of one small interface, see package check.
package history
