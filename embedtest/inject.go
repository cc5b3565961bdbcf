package embedtest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Action is what a Fault does to a call, or to a message of a stream.
type Action int

const (
	// Pass lets the call through; only the hooks are called.
	Pass Action = iota

	// DropResponse has the request carried out and keeps the answer from the
	// caller, who gets Fault.Err. On a stream the answer is swallowed.
	DropResponse

	// HoldResponse has the request carried out and keeps the answer until
	// Release, or until the caller's context ends and the caller gets its
	// error. On a stream, later answers wait behind the held one.
	HoldResponse

	// HoldRequest keeps the request until Release. When the caller's context
	// ends first the caller gets its error, and Release still sends a late
	// copy. On a stream, Release lets the message go, and the stream's end
	// forgets it.
	HoldRequest

	// Duplicate is DropResponse, and Release sends the same request once more.
	// It has no meaning on a stream.
	Duplicate

	// FailWith sends nothing and gives the caller Fault.Err. On a stream the
	// next message in either direction breaks the stream with Fault.Err.
	FailWith
)

// Fault says which calls of one client are struck, and how. Calls are seen
// behind the retries of etcd's client: each attempt is a call of its own, and
// etcd's client tries reads again after codes.Unavailable.
type Fault struct {
	// Method is the short name of an RPC, as in Client.Requests: "Txn",
	// "LeaseGrant", or a stream: "Watch", "LeaseKeepAlive". Empty means any
	// unary call, Authenticate included.
	Method string

	// Match decides after Method, from the request; on a stream from the
	// message in question: the answer for DropResponse and HoldResponse, the
	// request for HoldRequest, any of them for Pass and FailWith. It may
	// be called concurrently. Nil means all.
	Match func(method string, msg any) bool

	// Skip lets that many matching calls pass, then Times are struck: 0 means
	// one, a negative number all.
	Skip, Times int

	// Before is called just before a struck request is sent; After when the
	// server has answered it and the caller has not yet seen that. They are
	// called on the way of the call, which waits for them.
	Before, After func()

	Do Action

	// Err is what the caller gets from DropResponse, Duplicate and FailWith.
	// Defaults to a status of codes.Unavailable.
	Err error
}

func (f *Fault) err() error {
	if f.Err != nil {
		return f.Err
	}
	return status.Error(codes.Unavailable, "embedtest: injected fault")
}

// LateResponse is the server's answer to a request that Release sent.
type LateResponse struct {
	Method   string
	Response any // as *etcdserverpb.TxnResponse; nil after an error
	Err      error
}

// Injection is a Fault in force. Its methods may be called from several
// goroutines at once.
type Injection struct {
	f      Fault
	faults *faults
	first  chan struct{} // closed by the first strike

	mu      sync.Mutex
	seen    int // matching calls
	struck  int
	removed bool
	gate    chan struct{} // closed and replaced by Release
	held    []*held
	late    []LateResponse
}

// faults is what is injected into one client.
type faults struct {
	mu     sync.Mutex
	active []*Injection
	closed chan struct{} // the client is closed
	once   sync.Once
}

func newFaults() *faults { return &faults{closed: make(chan struct{})} }

func (fs *faults) close() { fs.once.Do(func() { close(fs.closed) }) }

// Inject puts a fault into force on this client, behind those injected before:
// the first one that matches a call strikes it. It panics when a stream is to
// be duplicated.
func (cl *Client) Inject(f Fault) *Injection {
	if f.Do == Duplicate && isStream(f.Method) {
		panic("embedtest: Duplicate has no meaning on the stream " + f.Method)
	}
	inj := &Injection{f: f, faults: cl.faults, first: make(chan struct{}), gate: make(chan struct{})}
	cl.faults.mu.Lock()
	cl.faults.active = append(cl.faults.active, inj)
	cl.faults.mu.Unlock()
	return inj
}

func isStream(method string) bool { return method == "Watch" || method == "LeaseKeepAlive" }

// take returns the injection that strikes this message, or nil. Only faults
// for which want returns true are asked.
func (fs *faults) take(method string, msg any, want func(*Fault) bool) *Injection {
	fs.mu.Lock()
	active := slices.Clone(fs.active)
	fs.mu.Unlock()
	for _, inj := range active {
		if want(&inj.f) && inj.take(method, msg) {
			return inj
		}
	}
	return nil
}

func (i *Injection) take(method string, msg any) bool {
	if i.f.Match != nil && !i.f.Match(method, msg) {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.removed {
		return false
	}
	i.seen++
	return i.f.hits(i.seen)
}

// hits reports whether the fault applies to the n-th matching call; the first is 1.
func (f *Fault) hits(n int) bool {
	n -= f.Skip
	return n > 0 && (f.Times < 0 || n <= max(f.Times, 1))
}

// hit notes that the fault has taken effect.
func (i *Injection) hit() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.struck++; i.struck == 1 {
		close(i.first)
	}
}

// Hits returns how often the fault has taken effect: the request is held,
// the answer is there and held or dropped, the error was given.
func (i *Injection) Hits() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.struck
}

// Wait returns when the fault has taken effect at least once. When ctx ends
// first it returns an error, that of ctx.
func (i *Injection) WaitHit(ctx context.Context) error {
	select {
	case <-i.first:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release lets go what is held now, sends held requests and the copies of
// Duplicate in their order, and returns when the server has answered them. It
// returns an error, the join of those answers that are errors, when there are
// any; LateResponses has the answers one by one. The fault stays in force.
func (i *Injection) Release() error {
	i.mu.Lock()
	close(i.gate)
	i.gate = make(chan struct{})
	held := i.held
	i.held = nil
	i.mu.Unlock()

	var errs []error
	for _, h := range held {
		res := h.send()
		errs = append(errs, res.Err)
		i.mu.Lock()
		i.late = append(i.late, res)
		i.mu.Unlock()
	}
	return errors.Join(errs...)
}

// LateResponses returns what the requests sent by Release were answered, in
// order.
func (i *Injection) LateResponses() []LateResponse {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.late)
}

// Remove ends the fault: it strikes no more. What it holds stays held until
// Release or the client's end.
func (i *Injection) Remove() {
	i.mu.Lock()
	i.removed = true
	i.mu.Unlock()
	i.faults.mu.Lock()
	defer i.faults.mu.Unlock()
	i.faults.active = slices.DeleteFunc(i.faults.active, func(x *Injection) bool { return x == i })
}

// released returns the channel that the next Release closes.
func (i *Injection) released() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.gate
}
