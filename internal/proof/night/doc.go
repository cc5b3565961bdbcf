// Night tries an operator's night: a fleet of real processes with 300 names on one etcd, the console, the exporter, and
// a Prometheus with the rules of docs/observability. Five faults of a seed's choice start at random times. An operator who
// has the addresses, the pages of docs and bin/etcdkit finds cause and remedy; the answers are in a file.
//
//	make night ARGS="-seed 7"
//	make night ARGS="-check"
//	make night ARGS="-check -part 3" # a third of the names, on a busy machine
//
// With -check it causes every fault of the list itself, and fails unless the alerts that docs/observability.md names fire, no
// other one does, the first step shows the cause, and the remedy ends the alerts.
//
// Time is compressed: a minute of the rules lasts for -minute. Ranges, `for` and offsets of the rules are scaled, and so
// are bounds in seconds from 10 s on (rules.go). What etcdkit itself bounds, such as the TTL of a session, is not scaled.
package main
