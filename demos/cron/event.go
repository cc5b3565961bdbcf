package main

import "time"

// The kinds of events.
const (
	evReady  = "ready"
	evBegin  = "begin"  // a run starts
	evStep   = "step"   // a step of its work begins
	evDid    = "did"    // the step is done
	evEnd    = "end"    // the run's function has returned
	evResult = "result" // the result of a call for a tick
	evStall  = "stall"  // the process got no time to run until At, for Took
	evSilent = "silent" // etcd did not answer until At, for Took
	evBye    = "bye"    // the worker has finished its runs, and ends
)

// The two ways to run a job.
const (
	bySchedlock = "schedlock"
	byName      = "by name" // naive.go
)

// event is one line of a run's history. At is of the host clock, all other times of the
// worker's.
type event struct {
	At      int64     `json:"at"`
	Kind    string    `json:"kind"`
	Way     string    `json:"way,omitempty"`
	Job     string    `json:"job,omitempty"`
	Tick    time.Time `json:"tick,omitzero"`
	Attempt int       `json:"attempt,omitempty"`
	// Outcome and Owner are those of a schedlock.Result; Error says why, if it has.
	Outcome string `json:"outcome,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Error   string `json:"error,omitempty"`
	Took    int64  `json:"took,omitempty"`

	worker string // that reports it; set by the parent
}
