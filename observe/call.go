package observe

import "time"

// Op is what a call does.
type Op string

// The operations that are bracketed.
const (
	Acquire  Op = "acquire"  // a call that asks for a permit of a semaphore, a limiter or a mutex
	Hold     Op = "hold"     // from the grant of a permit to its release or loss
	Release  Op = "release"  // a call of Permit.Release
	Campaign Op = "campaign" // a call that asks for a term of an election
	Lead     Op = "lead"     // from the grant of a term to its release or loss
	Claim    Op = "claim"    // a call that claims a tick of a job
	Run      Op = "run"      // the function of a job
	Begin    Op = "begin"    // a call that begins an attempt at a request, or finds its outcome
	Execute  Op = "execute"  // from the beginning of an attempt to its end
	Record   Op = "record"   // a call that settles an attempt: commit, fail, release or abandon
)

// Kind is what a call is about.
type Kind string

// The kinds of primitives.
const (
	Semaphore Kind = "semaphore"
	Mutex     Kind = "mutex"
	Election  Kind = "election"
	Limiter   Kind = "limiter" // a KeyedLimiter; Call.Key is the key
	Rate      Kind = "rate"    // a RateLimiter, whose shares are permits of the process
	Job       Kind = "job"
	Store     Kind = "store"
)

// Call describes a call that begins. Its Op, Kind and Name are few and may label metrics. Key, Ref,
// Scope and Token are many and must not.
type Call struct {
	Op        Op
	Kind      Kind
	Namespace string
	Name      string // of the semaphore, mutex, election, limiter, job or store

	Key    string // of a limiter's permit
	Weight int    // of a permit; 0 if the options are not valid
	Token  int64  // of a hold, a release, a run, an execution and a record

	Tick    time.Time     // of a claim and a run; of a claim without a fire time the time of the call
	Every   time.Duration // of a claim by schedlock.Every: the period, anywhere in which the call may come; otherwise 0
	Attempt int           // of a run, an execution and a record

	Operation string // of a request: idempotency.Key.Op
	Scope     string // of a request
	Ref       string // of a request, as Store.Resolve takes it; the key's ID is a secret and not here
}
