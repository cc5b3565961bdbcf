// Package clitest is the fixture of the tests of the command's verbs: it executes the whole command on a
// namespace of an etcd of its own, as a function or as a process, and compares what it prints with transcripts.
// Only tests import it.
package clitest
