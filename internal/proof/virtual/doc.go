// Package virtual tests the session and its queues in virtual time: on package
// etcdfake, in bubbles of testing/synctest, where every moment is exact and an hour
// costs nothing. It is tests only.
//
// The table tests say what happens when, to the millisecond. TestProtocol lets rapid
// make up scripts, of what several processes do and what goes wrong meanwhile, records
// what they did and saw as a history (package history), and has the checkers of package
// check judge it. A script that fails shrinks.
package virtual
