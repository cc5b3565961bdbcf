// Package deptest holds the rules of this repository that the compiler does
// not know: who may import whom, what a doc comment owes its reader, how long
// a file may grow, and that the lists under docs/ tell the truth. It has only
// tests. Each rule carries its reason, and each is shown to fail on a planted
// violation.
package deptest
