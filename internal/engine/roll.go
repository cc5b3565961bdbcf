package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/record"
)

// Ticket is one request of a session, from the choice of its slot until its keys are
// certainly gone.
type Ticket struct {
	Stored
	Queue  string // the range of its queue's keys
	Number int    // of its slot
	Note   string // of its call, for operators

	left  Mail          // guarded by the roll
	wake  chan struct{} // likewise; closed by a notice, nil unless one is awaited
	asked func()        // likewise; called when it is asked to stop while it waits, nil unless it waits
	since time.Time     // likewise; when it began to hold
	helps bool          // likewise; its holder is a helper
	freed bool          // guarded by the slots
	gone  chan struct{} // likewise; closed when it is freed, nil unless Leaving has shown it
}

// keys are all keys that belong to the ticket.
func (t *Ticket) keys() []string { return slices.Concat([]string{t.Key}, t.Also, t.Next) }

// Mail is what other sessions have left for one request of this session.
type Mail struct {
	Notice *record.Notice // why they ended it
	Asked  *record.Notice // that it should step down
}

// take keeps what is new, of what is for this ticket.
func (t *Ticket) take(n Mail) {
	m := &t.left
	if n.Notice != nil && n.Notice.Key == t.Key {
		m.Notice = n.Notice
	}
	if m.Asked == nil && n.Asked != nil && n.Asked.Key == t.Key { // the first request counts
		m.Asked = n.Asked
	}
}

// Holder is what holds by a ticket: a permit.
type Holder interface {
	// Lose ends it with the session, and returns what reports that to the hooks, or nil if
	// it had ended before.
	Lose(cause, reason error) (report func())
	// Evicted ends it by a notice, likewise.
	Evicted(record.Notice) (report func())
	// StepDown brings it the word of another session that it should be released.
	StepDown(record.Notice)
	// Released reports whether its owner has released it.
	Released() bool
}

// roll records the requests of a session on one lease, from before they are written: which
// of them hold, what other sessions have left for them, and whether all has ended. These
// are under one lock: a notice that arrives between the look for notices and the
// registration of a permit would be lost otherwise, and the permit's context never end.
//
// A request is identified by its key and its token: requests of one Txn have the same.
//
// It keeps no notice that is for none of this session's requests, or for one that is gone.
// So it needs no bound, by which others could push out the notice of a live request.
type roll struct {
	remember func(relation) bool // counts one more holder in the session: see work.add

	mu       sync.Mutex
	ended    bool
	cause    error
	reason   error
	inUse    bool                // something was held at the end
	written  map[int64][]*Ticket // by token
	creating map[*Ticket]int64   // whose tokens are not known yet, with their numbers
	begun    int64               // the next number
	early    map[int64]*early    // by token: for one of those, perhaps
	holders  map[*Ticket]Holder
	entered  int                  // holders that have no request here
	runs     map[*Entered]holding // those of them that are runs of jobs
}

// early is kept until all creations before number until have ended: the request of a later
// one has a greater token.
type early struct {
	mails []Mail
	until int64
}

// keep keeps what has come: of what is for one request, the latest.
func (e *early) keep(m Mail) {
	for i, known := range e.mails {
		if m.Notice == nil && known.Notice == nil && m.Asked.Key == known.Asked.Key {
			return // the first request to step down counts
		}
		if m.Notice != nil && known.Notice != nil && m.Notice.Key == known.Notice.Key {
			e.mails[i] = m
			return
		}
	}
	e.mails = append(e.mails, m)
}

func newRoll(remember func(relation) bool) *roll {
	return &roll{
		remember: remember,
		written:  map[int64][]*Ticket{}, creating: map[*Ticket]int64{}, early: map[int64]*early{}, holders: map[*Ticket]Holder{}, runs: map[*Entered]holding{},
	}
}

// creates records that a ticket's request is about to be written.
func (r *roll) creates(t *Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.creating[t] = r.begun
	r.begun++
}

// Written records the outcome of that: the token, or 0 if no request was written.
func (r *roll) Written(t *Ticket, token int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.creating, t)
	if t.Token = token; token != 0 {
		r.written[token] = append(r.written[token], t)
		if e := r.early[token]; e != nil {
			for _, m := range e.mails {
				t.take(m)
			}
		}
	}
	if len(r.early) == 0 {
		return
	}
	oldest := r.begun
	for _, number := range r.creating {
		oldest = min(oldest, number)
	}
	maps.DeleteFunc(r.early, func(_ int64, e *early) bool { return e.until <= oldest })
}

// forget is for a ticket whose key is gone.
func (r *roll) forget(t *Ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	others := slices.DeleteFunc(r.written[t.Token], func(o *Ticket) bool { return o == t })
	if r.written[t.Token] = others; len(others) == 0 {
		delete(r.written, t.Token)
	}
}

// deliver keeps what others have left for the requests with a token, and returns those of
// them that hold. If it can be for none of this session's, it keeps nothing.
func (r *roll) deliver(token int64, m Mail) map[*Ticket]Holder {
	r.mu.Lock()
	defer r.mu.Unlock()
	holding := map[*Ticket]Holder{}
	for _, t := range r.written[token] {
		t.take(m)
		t.wakes()
		t.stops()
		if h := r.holders[t]; h != nil && (m.Notice == nil || m.Notice.Key == t.Key) && (m.Asked == nil || m.Asked.Key == t.Key) {
			holding[t] = h
		}
	}
	if len(r.creating) > 0 { // another request with this token may be on its way
		e := r.early[token]
		if e == nil {
			e = &early{}
			r.early[token] = e
		}
		e.keep(m)
		e.until = r.begun
	}
	return holding
}

// Noticed returns a channel that is closed when the watch has brought a notice of a request.
func (r *roll) Noticed(t *Ticket) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.wake == nil {
		t.wake = make(chan struct{})
		t.wakes()
	}
	return t.wake
}

// wakes closes the channel of a ticket that has a notice, once.
func (t *Ticket) wakes() {
	if t.wake == nil || t.left.Notice == nil {
		return
	}
	select {
	case <-t.wake:
	default:
		close(t.wake)
	}
}

// WhileWaiting has stop called when another session asks that a waiting request stop, until waited is
// called; stop must not block. What is asked after that is for the holder, see Hold.
func (r *roll) WhileWaiting(t *Ticket, stop func(record.Notice)) (waited func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.asked = func() { stop(*t.left.Asked) }
	t.stops()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		t.asked = nil
	}
}

// stops ends the wait of a ticket that is asked to stop.
func (t *Ticket) stops() {
	if t.asked != nil && t.left.Asked != nil {
		t.asked()
	}
}

// Notice returns the notice of a request, or nil if the watch has brought none.
func (r *roll) Notice(t *Ticket) *record.Notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.left.Notice
}

// add is Epoch.Hold for a lease that is valid.
func (r *roll) add(t *Ticket, h Holder, as relation) (Mail, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		return Mail{}, ErrEpoch
	case t.left.Notice != nil:
		return t.left, nil
	case !r.remember(as):
		return Mail{}, ErrClosed
	}
	r.holders[t], t.since, t.helps = h, time.Now(), as == helper
	return t.left, nil
}

// drop forgets the holder of a ticket, and reports whether there was one. helpers is 1 if it was one.
func (r *roll) drop(t *Ticket) (known bool, helpers int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known = r.holders[t]
	delete(r.holders, t)
	if t.helps {
		helpers = 1
	}
	return known, helpers
}

// Holds reports whether a request of the queue holds by this token.
func (r *roll) Holds(queue string, token int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.written[token], func(t *Ticket) bool { return t.Queue == queue && r.holders[t] != nil })
}

// enter counts one more holder that has no request here, and returns false if all has ended
// or the session counts none more. For one that is no run of a job it is only a number.
func (r *roll) enter(h *Entered, job string, as relation) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || !r.remember(min(as, part)) {
		return false
	}
	r.entered++
	if job != "" {
		r.runs[h] = holding{job: job, since: time.Now()}
	}
	return true
}

// leave is for a holder that has entered, and is called once. It returns false if the end
// has counted this holder already.
func (r *roll) leave(h *Entered) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.entered--
		delete(r.runs, h)
	}
	return !r.ended
}

// end ends all, for the first cause that it is given. It returns the holders, for the caller
// to end, and how many there were with those that have entered, and helpers among them; first is false, and there are
// none, if all had ended before.
func (r *roll) end(cause, reason error) (holders map[*Ticket]Holder, held, helpers int, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, 0, 0, false
	}
	r.ended, r.cause, r.reason = true, cause, reason
	holders, held = r.holders, len(r.holders)+r.entered
	for t := range holders {
		if t.helps {
			helpers++
		}
	}
	r.inUse = held > 0
	r.holders, r.entered, r.runs = map[*Ticket]Holder{}, 0, nil
	return holders, held, helpers, true
}

// Why returns how all has ended: ErrLost or ErrClosed, and a reason.
func (r *roll) Why() (cause, reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cause, r.reason
}
