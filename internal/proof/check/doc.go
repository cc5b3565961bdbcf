// Package check judges histories (package history): whether what a run did and saw
// is what was promised.
//
// Each checker looks for one kind of fault, by means of its own, so that a mistake
// in one is seen by another:
//
//	store   C1  etcd's events replayed: what was admitted, and when, by the rule;
//	            every key written once, every delete explained, nothing left over
//	belief  C2  beliefs of holders in permits, on the host's clock: never more than
//	            the limit, never after the key was gone
//	fence   C3  writes to protected registers: none by a former holder
//	linear  C4  calls and returns alone: is there an order in which they make sense
//	live    C5  waiting ends, calls return when their context does, keys go
//	requests C6 idempotent requests: one outcome, and none begins after it; one attempt
//	            at a time; what is replayed is what was recorded
//	jobs    C7  scheduled jobs: one start for each attempt at a tick, in order; no
//	            finish touches another run; no run overlaps with the next
//	rates   C8  rates: in no window more tokens than the rate and its burst allow
//
// A permit of a limiter with a total is judged at both levels: by its request in the
// queue of the total, whose token it has, and by the one at its key.
//
// Checkers share the replay of the tap (replay.go) and nothing of the product: the
// rule of admission and the names of keys are written here a second time, so that
// a mutant of the product does not also change its judge.
//
// # Verdicts
//
// Red: a rule is broken. Inconclusive: that is unknown, for instance because the
// tap has missed something. Void: nothing was broken, but the run did not contain
// what it was made for (see Required). Green: none of these. Excuses, such as a
// holder whose key a nemesis deleted by hand, are listed and counted with every
// verdict.
//
// All parameters are settings in the history itself, so that a file judged again
// gets the verdict that it got.
//
// # Adding a checker
//
// Implement Checker, with settings under a name of your own, and add it to a suite
// in suite.go. A run names its suite in the setting "suite". Show it histories that
// it has to refuse.
package check
