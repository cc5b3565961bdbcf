// Package exit is how a verb of the command etcdkit ends: exit codes, the errors that have one, and what is
// said about an error on standard error.
package exit
