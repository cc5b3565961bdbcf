// Package ports reserves loopback ports for servers that are started for tests, so that servers
// started at the same time, by any process, never share one. Where the system cannot hold a port
// for a server (see Held), the race can be lost, and Taken recognises that.
package ports
