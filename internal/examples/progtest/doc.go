// Package progtest tests an example as its user runs it: as a process, with flags. The tests
// check its output, its exit status, and that it leaves no temporary files and no keys.
package progtest
