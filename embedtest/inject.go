package embedtest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Action is what a Fault does to a unary call, or to a message of a stream.
type Action int

const (
	// Pass does nothing to the call: only the hooks run.
	Pass Action = iota

	// DropResponse sends the request and, when the server has responded, returns Fault.Err
	// to the caller. On a stream the response is skipped.
	DropResponse

	// HoldResponse sends the request and holds the response until Release. If the caller's
	// context ends first, the caller gets the error of its context. On a stream, later
	// responses wait behind the held one.
	HoldResponse

	// HoldRequest holds the request until Release sends it. If the caller's context ends
	// first, the caller gets the error of its context, and Release still sends the
	// request. On a stream, the end of the stream discards the held message.
	HoldRequest

	// Duplicate is DropResponse, and Release sends the same request a second time. It is
	// not available on a stream.
	Duplicate

	// FailWith does not send the request and returns Fault.Err to the caller. On a stream,
	// the next message in either direction ends the stream with Fault.Err.
	FailWith
)

// Fault defines which calls of one client it applies to, and what it does to them.
//
// A fault applies to attempts: etcd's client retries outside the fault, and each of its
// retries is a call of its own. etcd's client retries reads after codes.Unavailable.
type Fault struct {
	// Method is the short name of an RPC, as in Client.Requests: "Txn", "LeaseGrant", or a
	// stream: "Watch", "LeaseKeepAlive". Empty means all unary calls, including
	// Authenticate.
	Method string

	// Match reports whether the fault applies to a call of Method, by its request. On a
	// stream, msg is the response for DropResponse and HoldResponse, the request for
	// HoldRequest, and either of them for Pass and FailWith. Match may be called
	// concurrently. Nil matches all.
	Match func(method string, msg any) bool

	// Skip is the number of matching calls that pass before the fault applies.
	Skip int

	// Times is the number of calls that the fault then applies to. 0 means one, and a
	// negative number means all.
	Times int

	// Before is called before the request is sent, or, with FailWith, before the call fails. After is
	// called when the server has responded, before the caller gets the response. The call waits for both.
	Before, After func()

	// Do is the action.
	Do Action

	// Err is the error that the caller gets from DropResponse, Duplicate and FailWith.
	// Defaults to a status of codes.Unavailable.
	Err error
}

func (f *Fault) err() error {
	if f.Err != nil {
		return f.Err
	}
	return status.Error(codes.Unavailable, "embedtest: injected fault")
}

// LateResponse is the server's response to a request that Release sent.
type LateResponse struct {
	Method   string
	Response any // for example *etcdserverpb.TxnResponse; nil if Err is set
	Err      error
}

// Injection is a Fault in force on a client. Its methods may be called concurrently.
type Injection struct {
	f      Fault
	faults *faults
	first  chan struct{} // closed by the first hit

	mu      sync.Mutex
	seen    int // matching calls
	hits    int
	removed bool
	release chan struct{} // closed and replaced by Release
	held    []*held
	late    []LateResponse
}

// faults are the injections of one client.
type faults struct {
	mu     sync.Mutex
	active []*Injection
	closed chan struct{} // closed with the client
	once   sync.Once
}

func newFaults() *faults { return &faults{closed: make(chan struct{})} }

func (fs *faults) close() { fs.once.Do(func() { close(fs.closed) }) }

// Inject puts a fault into force on this client. If several faults match a call, the one
// that was injected first applies. Inject panics for Duplicate on a stream.
func (cl *Client) Inject(f Fault) *Injection {
	if f.Do == Duplicate && isStream(f.Method) {
		panic("embedtest: inject: Duplicate is not available on the stream " + f.Method)
	}
	inj := &Injection{f: f, faults: cl.faults, first: make(chan struct{}), release: make(chan struct{})}
	cl.faults.mu.Lock()
	cl.faults.active = append(cl.faults.active, inj)
	cl.faults.mu.Unlock()
	return inj
}

func isStream(method string) bool { return method == "Watch" || method == "LeaseKeepAlive" }

// take returns the injection that applies to this message, or nil. Faults for which want
// returns false are not considered.
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

// hit counts that the fault has taken effect.
func (i *Injection) hit() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.hits++; i.hits == 1 {
		close(i.first)
	}
}

// Hits returns how many times the fault has taken effect. A held request counts from the
// moment it is held, a held or dropped response from its arrival, and an error of FailWith
// at once.
func (i *Injection) Hits() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hits
}

// WaitHit waits until Hits is at least one. It returns an error only if ctx ends first: that
// of ctx.
func (i *Injection) WaitHit(ctx context.Context) error {
	select {
	case <-i.first:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release delivers all responses that are held, and sends all held requests and the copies of
// Duplicate in their order. It returns when the server has responded to each of them. If
// some responses are errors, Release returns an error that joins them; LateResponses has each
// response. The fault stays in force.
func (i *Injection) Release() error {
	i.mu.Lock()
	close(i.release)
	i.release = make(chan struct{})
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

// LateResponses returns the responses to the requests that Release has sent, in the order of
// sending.
func (i *Injection) LateResponses() []LateResponse {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.late)
}

// Remove ends the fault: it applies to no further call. Held requests and responses stay held
// until Release or the end of the client.
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
	return i.release
}
