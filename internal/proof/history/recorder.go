package history

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// Recorder takes the events of one process. It is safe for concurrent use.
type Recorder struct {
	clock Clock
	ops   atomic.Int64

	mu     sync.Mutex
	events []Event
	stream *json.Encoder
	failed error // of the stream
}

// NewRecorder returns an empty recorder that stamps with the host clock.
func NewRecorder() *Recorder { return NewRecorderOn(Clock{Now: hostclock.Now, At: hostclock.At}) }

// NewRecorderOn returns an empty recorder on a clock of the caller's: that of a bubble
// of testing/synctest, for which all else stops.
func NewRecorderOn(c Clock) *Recorder { return &Recorder{clock: c} }

// Clock is what a recorder stamps with, in nanoseconds. At returns the time of that
// clock that corresponds to t.
type Clock struct {
	Now func() int64
	At  func(t time.Time) int64
}

// Virtual is the clock of the bubble in which it is asked.
var Virtual = Clock{
	Now: func() int64 { return time.Now().UnixNano() },
	At: func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixNano()
	},
}

// At returns the time of the recorder's clock that corresponds to t.
func (r *Recorder) At(t time.Time) int64 { return r.clock.At(t) }

// Stream writes every event to w too, from now on and at once, one line and one
// Write each: a process that may be killed gives a file opened for appending.
func (r *Recorder) Stream(w io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stream = json.NewEncoder(w)
}

// Add records an event. It sets At unless it is set, and Seq. The event is
// returned as it was recorded.
func (r *Recorder) Add(e Event) Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.At == 0 {
		e.At = r.clock.Now()
	}
	e.Seq = int64(len(r.events)) + 1
	r.events = append(r.events, e)
	if r.stream != nil && r.failed == nil {
		r.failed = r.stream.Encode(e)
	}
	return e
}

// Set records a setting of the run: its seed, its prefix, a TTL. Checkers read
// some, see their documentation.
func (r *Recorder) Set(name, value string) {
	r.Add(Event{Kind: KindSet, Name: name, Attr: map[string]string{"value": value}})
}

// Mark records that the run has reached a phase.
func (r *Recorder) Mark(name string) { r.Add(Event{Kind: KindMark, Name: name}) }

// Finding records what the run itself has seen to be wrong, which no event shows: a
// goroutine that is left, for instance. A doubt makes the run inconclusive. rule is
// one word.
func (r *Recorder) Finding(rule string, doubt bool, text string) {
	e := Event{Kind: KindFinding, Name: rule, Error: text}
	if doubt {
		e.Cause = Doubt
	}
	r.Add(e)
}

// Doubt is the cause of a finding that leaves it open whether anything is wrong.
const Doubt = "doubt"

// Count records n more of something, for instance "leader changes".
func (r *Recorder) Count(name string, n int64) {
	r.Add(Event{Kind: KindCount, Name: name, N: n})
}

// Begin records that a nemesis begins, before it does, and returns what records
// that it is over. e.Name is the nemesis. What it strikes is in Lease, Token,
// Client, and in Attr["key"] or Attr["member"]; checkers excuse by these.
func (r *Recorder) Begin(e Event) (finish func()) {
	e.Kind, e.Op = KindBegin, r.ops.Add(1)
	began := r.Add(e)
	return sync.OnceFunc(func() {
		began.Kind, began.At = KindFinish, 0
		r.Add(began)
	})
}

// Client returns a client that records under this name, which must be unique in
// the whole run. Op numbers are unique in the recorder, so two Clients of one name
// on one recorder do no harm.
func (r *Recorder) Client(name string) *Client { return &Client{recorder: r, name: name} }

// History returns what was recorded so far, and the error of the stream if one
// occurred.
func (r *Recorder) History() (*History, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &History{Events: slices.SortedStableFunc(slices.Values(r.events), byTime)}, r.failed
}

// byTime sorts by time, and events of one time as they were recorded.
func byTime(a, b Event) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Seq, b.Seq)) }

// Client records operations and beliefs under one name. It is safe for concurrent
// use.
type Client struct {
	recorder *Recorder
	name     string
}

// Name returns the client's name.
func (c *Client) Name() string { return c.name }

// Add records an event of this client: an effect, for instance.
func (c *Client) Add(e Event) Event {
	e.Client = c.name
	return c.recorder.Add(e)
}

// Call records that an operation begins: call it right before. Name and the
// arguments of the operation are the caller's to set.
func (c *Client) Call(e Event) *Call {
	e.Kind, e.Op = KindCall, c.recorder.ops.Add(1)
	return &Call{client: c, call: c.Add(e)}
}

// Call is an operation that has begun.
type Call struct {
	client *Client
	call   Event
}

// Tag names the call in the whole run, so that what it writes to etcd can be
// traced to it: give it as the Note of a request. ParseTag undoes it.
func (c *Call) Tag() string { return Tag(c.call.Client, c.call.Op) }

// Of records with the return which permit the operation was about, if that is known only then.
func (c *Call) Of(token int64) { c.call.Token = token }

// Return records that the operation has returned: call it right after. Outcome is
// required; name, gate, weight and ID are taken from the call.
func (c *Call) Return(e Event) {
	e.Kind, e.Op = KindReturn, c.call.Op
	e.Name, e.Gate, e.Weight, e.ID = c.call.Name, c.call.Gate, c.call.Weight, c.call.ID
	e.Token, e.Limit = cmp.Or(e.Token, c.call.Token), cmp.Or(e.Limit, c.call.Limit)
	c.client.Add(e)
}

// Done is Return for an operation that only returns an error: no error is OK, and
// definite reports which errors are Fail; nil means none.
func (c *Call) Done(err error, definite func(error) bool) {
	switch {
	case err == nil:
		c.Return(Event{Outcome: OK})
	case definite != nil && definite(err):
		c.Return(Event{Outcome: Fail, Error: err.Error()})
	default:
		c.Return(Event{Outcome: Unknown, Error: err.Error()})
	}
}

// Granted records that the operation has returned with a permit, and that its
// holder believes in it from now on.
func (c *Call) Granted(token int64) *Belief {
	now := c.client.recorder.clock.Now()
	c.Return(Event{At: now, Outcome: OK, Token: token})
	b := &Belief{client: c.client, event: Event{
		Op: c.call.Op, Name: c.call.Name, Gate: c.call.Gate, Weight: c.call.Weight, ID: c.call.ID, Token: token,
	}}
	b.add(Event{At: now, Kind: KindGranted})
	return b
}

// Belief is a permit as its holder sees it. It is safe for concurrent use.
type Belief struct {
	client *Client
	event  Event

	mu       sync.Mutex
	held     int64 // when it was last confirmed
	reported int64 // when that was last recorded
	until    int64
	ended    bool
}

// heldEvery is the least time between two held events of one belief: End records
// the last confirmation exactly, so they are only for holders that never get
// there.
const heldEvery = int64(50 * time.Millisecond)

func (b *Belief) add(e Event) {
	f := b.event
	f.At, f.Kind, f.Cause, f.Until, f.Held = e.At, e.Kind, e.Cause, e.Until, e.Held
	b.client.Add(f)
}

// Check asks the permit whether it is still held, and records that it was at the
// time just before. Call it often, and before every effect. If the permit has a
// Deadline, that is recorded too. It returns whether the permit is held.
func (b *Belief) Check(p interface{ Err() error }) bool {
	clock := b.client.recorder.clock
	at := clock.Now()
	if p.Err() != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if d, ok := p.(interface{ Deadline() time.Time }); ok {
		b.until = clock.At(d.Deadline())
	}
	b.held = max(b.held, at)
	// A permit that has ended and is held again is what a checker wants to know.
	if b.ended || at-b.reported >= heldEvery {
		b.reported = at
		b.add(Event{At: at, Kind: KindHeld, Until: b.until})
	}
	return true
}

// End records that the belief is over, with its cause. For a release: Check, End,
// and only then call Release. Only the first End counts.
func (b *Belief) End(cause string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.ended = true
		b.add(Event{Kind: KindEnded, Cause: cause, Held: b.held, Until: b.until})
	}
}
