// Package deptest holds the rules of this repository that the compiler does
// not know: which package may import which, what a doc comment must say, how long a file may
// be and how large a type, and that the lists under docs/ are true. It has only
// tests. Each rule carries its reason, and each is shown to fail on a planted
// violation.
package deptest
