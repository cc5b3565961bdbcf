package history

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Kind is the kind of an event. The set is open.
type Kind string

// The kinds that this package knows how to pair and sort.
const (
	KindCall    Kind = "call"    // an operation begins
	KindReturn  Kind = "return"  // it has returned; Op pairs it with its call
	KindGranted Kind = "granted" // a belief begins; Op is that of the call that was granted
	KindHeld    Kind = "held"    // at At the holder still had the permit
	KindEnded   Kind = "ended"   // a belief is over; Cause says why, Held when it was last confirmed
	KindEffect  Kind = "effect"  // a write to a protected register
	KindPut     Kind = "put"     // the tap saw KV written at revision Rev
	KindDelete  Kind = "delete"  // the tap saw KV deleted at revision Rev
	KindBegin   Kind = "begin"   // a nemesis begins; Op pairs it with its finish
	KindFinish  Kind = "finish"
	KindCount   Kind = "count"   // N more of what Name says
	KindMark    Kind = "mark"    // the run has reached the phase Name
	KindSet     Kind = "set"     // the setting Name has the value Attr["value"]
	KindFinding Kind = "finding" // the run itself has seen something wrong, or has a doubt
)

// Names of operations. The set is open.
const (
	Open       = "open"       // a session; Lease is the lease if it is known
	Close      = "close"      // a session
	Die        = "die"        // a process, without a word
	Acquire    = "acquire"    // Semaphore.Acquire, Mutex.Lock
	Try        = "try"        // TryAcquire, TryLock
	Release    = "release"    // Permit.Release; Token says which
	SetLimit   = "setlimit"   // Limit is the limit; of a semaphore, or of a key of a limiter
	ClearLimit = "clearlimit" // KeyedLimiter.ClearLimit: the gate is the key's
	SetDefault = "setdefault" // KeyedLimiter.SetDefault: the gate is the limiter, as "limiter/llm"
	Evict      = "evict"      // by ID
	EvictToken = "evicttoken" // by token
	ReleaseID  = "releaseid"
	Status     = "status"

	JobDo     = "job.do"     // Locker.Do; ID is the tick if the call is for one
	JobClaim  = "job.claim"  // the part of it before the function is called
	JobStart  = "job.start"  // a function is called: ID is its tick, N the attempt, Token the run's; its end is a Release
	JobUnlock = "job.unlock" // Locker.Unlock

	RequestDo      = "request.do"      // idempotency.Do; Gate is the record's key; Attr: payload, sum of the value
	RequestBegin   = "request.begin"   // the part of it before the function is called
	RequestStart   = "request.start"   // a function is called: N is the attempt; its end is a Release with Attr["as"]
	RequestDelete  = "request.delete"  // Store.Delete
	RequestResolve = "request.resolve" // Store.Resolve

	RateTake = "rate.take" // RateLimiter.Allow or Wait; Attr: persecond and burst, of the program
	RateSet  = "rate.set"  // RateLimiter.SetRate; Attr: persecond and burst, to be set
)

// Outcome is how an operation ended for its caller.
type Outcome string

// The outcomes.
const (
	OK      Outcome = "ok"
	Fail    Outcome = "fail"    // it definitely did not take effect
	Unknown Outcome = "unknown" // it may have, or may yet
)

// Causes of a failed call. The set is open.
const (
	Full = "full" // no room, and the caller did not want to wait (longer)
	Gone = "gone" // its request or session was taken away
)

// The results of a call of RequestDo, as its Cause.
const (
	Ran          = "ran"      // its own function's value is recorded
	Replayed     = "replayed" // the value of another call
	FailedBefore = "failed before"
	InProgress   = "in progress"
	Mismatch     = "mismatch"
	UnknownFate  = "unknown fate"
)

// Modes of protecting an effect.
const (
	ModeGuard = "guard" // a Txn on the permit's guard
	ModeToken = "token" // a register that refuses a smaller token than the greatest it has seen
)

// Causes of the end of a belief. The set is open.
const (
	Released    = "released"      // its holder releases it
	Lost        = "lost"          // lease, presence key or own key gone, as far as the holder knows
	Deadline    = "deadline"      // the lease's deadline has passed
	HeldTooLong = "held too long" // MaxHold
	Evicted     = "evicted"       // Evict, EvictToken, TakeOver
	ReleasedID  = "released by id"
	Closed      = "closed" // its session was closed
)

// Marks that checkers look for. The set is open.
const (
	// MarkTap: the tap is complete up to revision Rev, its start.
	MarkTap = "tap"
	// MarkTapComplete: the tap has seen everything up to revision Rev.
	MarkTapComplete = "tap complete"
	// MarkTapGap: the tap has missed events; the run cannot be judged from it.
	MarkTapGap = "tap gap"
	// MarkHealthy: all nemeses are over and the cluster is healthy.
	MarkHealthy = "healthy"
	// MarkIdle: no call is open and no permit is held, sessions still are, and
	// clean-up has had its time: requests that exist now have no owner.
	MarkIdle = "idle"
	// MarkDrained: all sessions are closed and the longest lease has run out.
	MarkDrained = "drained"
)

// Event is one line of a history. Which fields are set depends on Kind and Name.
type Event struct {
	At     int64  `json:"at"`  // host clock, ns
	Seq    int64  `json:"seq"` // order of recording in one process
	Kind   Kind   `json:"kind"`
	Client string `json:"client,omitempty"` // that wrote it; unique in the run
	Op     int64  `json:"op,omitempty"`     // pairs events of one client: call and return, belief, nemesis
	Name   string `json:"name,omitempty"`   // of the operation, nemesis, counter, mark or setting

	Gate   string `json:"gate,omitempty"` // kind and name of a queue: "semaphore/render", "mutex/migrate", "limiter/llm/key/tenant", "limiter/llm/total"
	Weight int64  `json:"weight,omitempty"`
	ID     string `json:"id,omitempty"`
	Limit  int64  `json:"limit,omitempty"`
	Token  int64  `json:"token,omitempty"`
	Lease  int64  `json:"lease,omitempty"`

	Outcome Outcome `json:"outcome,omitempty"`
	Error   string  `json:"error,omitempty"`
	Cause   string  `json:"cause,omitempty"`

	// Until is a time of the host clock: with a call, when its ctx ends (0:
	// never); with granted, held and ended, the permit's own deadline.
	Until int64 `json:"until,omitempty"`
	// Held is with ended the last time at which the permit was confirmed.
	Held int64 `json:"held,omitempty"`
	// Rev is a revision of etcd's: of a put, a delete, or of a guarded effect.
	Rev int64 `json:"rev,omitempty"`
	KV  *KV   `json:"kv,omitempty"`
	N   int64 `json:"n,omitempty"` // with count; with an effect, its number in the register's own order

	Attr map[string]string `json:"attr,omitempty"` // what no field fits
}

// KV is a key as the tap saw it: after a put, or before a delete as far as that
// is known (a compaction may have taken all but the key).
type KV struct {
	Key     Bytes `json:"key"`
	Value   Bytes `json:"value,omitempty"`
	Create  int64 `json:"create,omitempty"`
	Version int64 `json:"version,omitempty"`
	Lease   int64 `json:"lease,omitempty"`
}

// Bytes is text that may be no valid UTF-8. It stays readable in JSON if it is,
// and exact if not.
type Bytes string

// MarshalJSON writes a string, or an object with base64.
func (b Bytes) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(b)) {
		return json.Marshal(string(b))
	}
	return json.Marshal(struct {
		Base64 []byte `json:"base64"`
	}{[]byte(b)})
}

// UnmarshalJSON reads what MarshalJSON writes. It returns an error for other
// JSON.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	if strings.HasPrefix(string(data), `"`) {
		return json.Unmarshal(data, (*string)(b))
	}
	var raw struct {
		Base64 []byte `json:"base64"`
	}
	err := json.Unmarshal(data, &raw)
	*b = Bytes(raw.Base64)
	return err
}
