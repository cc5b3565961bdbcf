//go:build !linux

package main

import "time"

// clockName says what the events are stamped with.
const clockName = "wall clock"

// hostClock reads the wall clock in nanoseconds: the clock that all processes of
// this host share wherever Go runs. If somebody sets it during a run, the
// referee's verdict on that run means nothing.
func hostClock() int64 { return time.Now().UnixNano() }
