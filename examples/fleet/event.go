package main

// The kinds of events. A worker process reports the first group. The parent adds the second
// group: what it did to a process.
const (
	evReady     = "ready"     // the process has its session
	evWait      = "wait"      // an attempt requests a permit
	evHold      = "hold"      // the attempt holds a permit
	evBegin     = "begin"     // a step begins
	evEnd       = "end"       // a step ends
	evReleasing = "releasing" // the work has ended, the release follows
	evDone      = "done"      // the attempt has ended

	evKill = "kill" // the process was killed
	evStop = "stop" // the process is stopped
	evCont = "cont" // the process is about to be continued
)

// event is one line of a run's history. All times are those of the host clock.
type event struct {
	At        int64  `json:"at"`
	Kind      string `json:"kind"`
	Worker    int    `json:"worker"` // its row in the timeline, from 0; set by the parent
	Process   int    `json:"process,omitempty"`
	Execution int    `json:"execution,omitempty"`
	Attempt   int    `json:"attempt,omitempty"`
	Step      int    `json:"step,omitempty"`

	// Deadline is that of the permit, as the worker knew it; in begin and releasing.
	Deadline int64 `json:"deadline,omitempty"`
	// Lost reports that the permit had ended before; in releasing.
	Lost bool `json:"lost,omitempty"`

	End   ending `json:"end,omitempty"` // in done
	Error string `json:"error,omitempty"`
	// Leaked is the number of the process's requests in etcd after a panic; want 0.
	Leaked int `json:"leaked,omitempty"`
}

// job is one attempt as the parent sends it to a worker. The worker itself causes an error, a
// panic or a stuck step. The parent kills or pauses the process.
type job struct {
	Execution int    `json:"execution"`
	Attempt   int    `json:"attempt"`
	Steps     int    `json:"steps"`
	End       ending `json:"end"`
	At        int    `json:"at"` // the step at which the end happens; 0: while the attempt waits
}
