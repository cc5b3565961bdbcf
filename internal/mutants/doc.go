// Package mutants shows that the tests and checkers can fail. Each patch in patches
// takes one rule out of the product; `make mutants` applies them one by one with
// `go build -overlay`, so that the product carries no hooks for it and no file of the
// tree is touched, runs what should notice, and prints who did.
//
// A patch begins with a header:
//
//	Rule: what is so instead of the rule.
//	Id: of the list in docs/testing.md that it comes from
//	Chaos: seeds and seconds, as "3 25": the chaos suite has to be red within so many
//	       seeds of so many seconds each
//	Nemeses: those of the suite that bring it about, separated by commas; default: all
//	Subjects: those of the suite that show it, separated by commas; default: all
//	Killer: the checker that has to be among those that notice
//	Test: package and test, as "./internal/lease TestWindow", instead of Chaos, for
//	      what no fault of the suite brings about, or a test shows each time
package mutants
