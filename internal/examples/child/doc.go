// Package child runs the processes of the examples: a program starts itself again as a child,
// sends jobs to the child as lines of JSON, and receives its events as lines of JSON. A child
// can be killed, stopped and continued at any time. Events that it has written before are not
// lost.
package child
