package main

// The kinds of events. A worker process reports the first group, the parent what
// it does to a process.
const (
	evReady = "ready" // the process has its session
	evWait  = "wait"  // an attempt asks for a permit
	evHold  = "hold"  // it has one
	evBegin = "begin" // a step begins
	evEnd   = "end"   // a step is done
	evBack  = "back"  // the work is over, the permit is about to be given back
	evDone  = "done"  // the attempt is over

	evKill = "kill" // the process is dead and reaped
	evStop = "stop" // the process is stopped
	evCont = "cont" // the process is about to go on
)

// event is one line of a run's history. All times are of the host clock.
type event struct {
	At        int64  `json:"at"`
	Kind      string `json:"kind"`
	Worker    int    `json:"worker"` // its row in the timeline, from 0; set by the parent
	Process   int    `json:"process,omitempty"`
	Execution int    `json:"execution,omitempty"`
	Attempt   int    `json:"attempt,omitempty"`
	Step      int    `json:"step,omitempty"`

	// Deadline of the permit as the worker knew it, with begin and back.
	Deadline int64 `json:"deadline,omitempty"`
	// Lost tells, with back, that the permit had ended before.
	Lost bool `json:"lost,omitempty"`

	End   ending `json:"end,omitempty"` // with done
	Error string `json:"error,omitempty"`
	// Leaked counts requests of the process that still stood in etcd after an
	// attempt that should have left none.
	Leaked int `json:"leaked,omitempty"`
}

// job is one attempt as the parent orders it. The worker is told of the ends that
// it has to bring about itself; kill and pause come as a surprise.
type job struct {
	Execution int    `json:"execution"`
	Attempt   int    `json:"attempt"`
	Steps     int    `json:"steps"`
	End       ending `json:"end"`
	At        int    `json:"at"` // the step before or in which the end happens; 0: while it waits
}
