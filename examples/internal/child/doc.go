// Package child gives the examples real processes: the program starts itself again,
// orders its children about and hears what they do, all on one clock of the host. A
// child can be killed, stopped and continued at any time, and nothing that it had
// told before is lost.
package child
