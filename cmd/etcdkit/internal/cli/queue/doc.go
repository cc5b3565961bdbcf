// Package queue is a queue as the verbs of the command know it: as an argument names it, as the value of the
// public package that it is, and in a table of the busiest.
package queue
