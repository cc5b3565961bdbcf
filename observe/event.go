package observe

import "time"

// Event is one of Waiting, PermitLost, Overrun, SessionLost, SessionRecovered, SessionClosed, LeaseRenewed,
// LimitChanged, RateCalls, OutagePolicy, Unclaimed and HookPanicked.
type Event interface{ event() }

// Waiting says why a call waits: at its beginning, and then every SessionOptions.ReportEvery.
type Waiting struct {
	Call
	Level  string        // of a limiter: "key" or "total", whose queue the call waits in; empty otherwise
	Waited time.Duration // since the call began
	Limit  int
	// Ahead is the number of requests before it, holders included. While the request is far from its
	// admission, that is the number when it joined the queue, and so the greatest that is possible.
	Ahead int
	// Blocking are the holders, oldest first; at most the first ten. There are none while the request is
	// far from its admission.
	Blocking []Holder
}

// Holder is a request that holds a permit, as concurrency.Request describes it. Renewed and ExpiresBy
// are zero in the first report.
type Holder struct {
	Token              int64
	ID, Owner, Note    string
	Weight             int
	Lease              int64
	Requested          time.Time
	MaxHold            time.Duration // 0 if there is no bound
	Renewed, ExpiresBy time.Time
}

// PermitLost reports that a permit or a term has ended before its holder has released it. The hold ends
// with the same outcome.
type PermitLost struct {
	Call           // the hold
	Reason  Reason // as in Outcome
	Cause   error  // a *concurrency.LostError
	HeldFor time.Duration
}

// Overrun reports that work has gone on after what it ran under had ended: a function returned, or a
// permit was released, For after the loss. For a job and a request, it is also reported once when the
// function has not returned within the session's Margin; then For is that time.
type Overrun struct {
	Call
	For time.Duration
}

// SessionLost reports that the session's lease is lost. The contexts of all permits, runs and attempts
// on it have ended.
type SessionLost struct {
	Namespace, Owner string
	Lease            int64
	Cause            error
}

// SessionRecovered reports that a lost session has a new lease.
type SessionRecovered struct {
	Namespace, Owner string
	Lease            int64
	After            time.Duration // since the loss
}

// SessionClosed reports that the session was closed, or its client.
type SessionClosed struct {
	Namespace, Owner string
	Lost             bool // it had no lease: no SessionRecovered follows its last SessionLost
}

// LeaseRenewed reports a renewal of the session's lease that etcd has acknowledged.
type LeaseRenewed struct {
	Namespace, Owner string
	Lease            int64
	// Age is the time from the sending of the renewal before to the answer to this one: a third of the
	// TTL if all is well. The session is lost when Age reaches TTL minus Margin.
	Age         time.Duration
	TTL, Margin time.Duration
}

// LimitChanged reports that the session has seen another limit than before. It sees the limit with each
// request.
type LimitChanged struct {
	Namespace string
	Kind      Kind
	Name      string
	Key       string // of a limiter, if the limit is that of a key; empty for the total and the default
	Level     string // of a limiter: "key" or "total"; empty otherwise
	From, To  int
}

// RateCalls reports how many calls of RateLimiter.Allow and Wait have ended with this result in the session since the
// report before: about each half second while the limiter is called. Calls that end while the session is closed may be
// missing.
type RateCalls struct {
	Namespace, Name string
	Result          Result
	Reason          Reason // Exceeded if there was no token, Waited after a long wait; otherwise as of Acquire
	Count           int
}

// OutagePolicy reports that the outage policy of a middleware decides from now on, or does so no more.
type OutagePolicy struct {
	Namespace string
	Kind      Kind
	Name      string
	Policy    string        // "closed", "open" or "share"
	Active    bool          // false when etcd answers again, or the session is closed
	Err       error         // of the request that has found the outage; nil when it ends
	Lasted    time.Duration // of the outage, when it ends
}

// Unclaimed reports that the handler of a request runs without a claim, since FailOpen of a middleware is set: it may
// execute twice. The call is that of an execution, with neither Attempt nor Token.
type Unclaimed struct {
	Call
	Err error // why the request could not begin
}

// HookPanicked reports that a hook has panicked, or has exited its goroutine: what it was called for may be missing in its
// reports. A panic of a hook that receives this event is counted (Session.HookPanics), and not reported.
type HookPanicked struct {
	Namespace string
	Hook      string // "Start", "the end of Start" or "Event"
	Value     any    // of the panic
}

func (Waiting) event()          {}
func (PermitLost) event()       {}
func (Overrun) event()          {}
func (SessionLost) event()      {}
func (SessionRecovered) event() {}
func (SessionClosed) event()    {}
func (LeaseRenewed) event()     {}
func (LimitChanged) event()     {}
func (RateCalls) event()        {}
func (OutagePolicy) event()     {}
func (Unclaimed) event()        {}
func (HookPanicked) event()     {}
