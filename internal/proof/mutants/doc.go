// Package mutants shows that the tests and checkers can fail. Each file in edits takes one
// rule out of the product; `make mutants` applies them with `go build -overlay`, so that the
// product carries no hooks for it and no file of the tree is changed, runs the chaos suite or
// the test that should fail, and prints what did. Those that name a test are built together:
// see Together.
//
// A file begins with a head:
//
//	Rule: what the product does instead of the rule.
//	Id: a row of internal/proof/tested-failures.md, or M and E for rules that no row has
//	Chaos: seeds and seconds, as "3 25": the chaos suite has to be red within so many
//	       seeds of so many seconds each
//	Nemeses: those of the suite that cause it, separated by commas; default: all
//	Workloads: those of the suite that show it, separated by commas; default: all
//	Killer: the checker that has to be among those that notice
//	Gate: package and test that notice it in .ci/run, if the short form of the suite, TestChaos,
//	      does not
//	Test: package and test, as "./internal/lease TestWindow", instead of Chaos, for
//	      what no fault of the suite causes, or a test shows each time
//
// One or more edits follow, each a search and replace in one declaration:
//
//	In: internal/lease, (*window).renewed
//	Find:
//		if w.closed || passed(w.deadline, now) {
//			w.closed = true
//			return false
//		}
//	Put: w.closed = false
//
// In names a package, by its directory, and a function, method, type, constant or variable
// of it. The name of a method may be written (*T).m or T.m, whatever its receiver is. So an
// edit survives a move between the files of a package. It holds for each Find and Put up to
// the next In. A value that is longer than a line is written on the lines after its field,
// each indented by a tab. Put may be empty.
//
// Find is Go, compared token by token. It may begin and end in the middle of a statement.
// Spaces, line breaks and comments do not count, nor does a comma or semicolon before a
// closing bracket, which line breaks decide. It has to fit the declaration exactly once;
// anything else is an error that names mutant, declaration and number of matches.
//
// All else in the file keeps its text and its line numbers. What the mutated code no longer
// uses, such as a variable, is part of the mutant: a Put of "_ = x", or another edit.
package mutants
