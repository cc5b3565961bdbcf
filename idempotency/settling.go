package idempotency

import (
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// settling is how far an attempt is from its end. It is safe for concurrent use.
//
//	      begin          end
//	open ───────▶ writing ───▶ over
//	      ◀───────
//	       reopen
type settling struct {
	mu      sync.Mutex
	writing bool  // an outcome is being written
	over    error // what the next Commit returns: ErrSettled, ErrFenced; nil before
	ifs     []clientv3.Cmp
	then    []clientv3.Op // attached, as ifs
	final   bool          // no other attempt can have begun before it was over

	recorded bool  // it has an outcome, and no other attempt begins
	unknown  bool  // it was abandoned, and the request is refused until Resolve
	unkept   error // why the outcome is recorded without its result
}

// attach adds conditions and operations to the Txn that records the outcome.
func (x *settling) attach(ifs []clientv3.Cmp, then []clientv3.Op) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ifs, x.then = append(x.ifs, ifs...), append(x.then, then...)
}

// detach drops what was attached.
func (x *settling) detach() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ifs, x.then = nil, nil
}

// open returns nil as long as the attempt can be settled, and then why it cannot.
func (x *settling) open() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.refusal()
}

// refusal is open. x.mu is held.
func (x *settling) refusal() error {
	if x.over == nil && x.writing {
		return ErrSettled
	}
	return x.over
}

// now returns how far the attempt is.
func (x *settling) now() (writing, over bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.writing, x.over != nil
}

// begin starts the one way to the end, and returns what is attached, or why it cannot.
func (x *settling) begin() ([]clientv3.Cmp, []clientv3.Op, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.refusal(); err != nil {
		return nil, nil, err
	}
	x.writing = true
	return x.ifs, x.then, nil
}

// reopen lets the attempt continue: etcd does not accept what was attached, which is dropped.
func (x *settling) reopen() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing, x.ifs, x.then = false, nil, nil
}

// end ends the attempt. unkept keeps what omitted said, if the result that is recorded is that one.
func (x *settling) end(over error, final, unknown, unkept bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over, x.final, x.unknown = over, final, unknown
	if !unkept {
		x.unkept = nil // it was of a Commit that has met a condition
	}
}

// record notes that the attempt has an outcome, which etcd has.
func (x *settling) record() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.recorded = true
}

// isRecorded reports whether it has.
func (x *settling) isRecorded() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.recorded
}

// doubted notes that the end of an abandoned attempt is being written, whose request is refused until Resolve.
func (x *settling) doubted() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unknown = true
}

// omitted notes why the outcome is recorded without its result.
func (x *settling) omitted(why error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unkept = why
}

// unlessOver calls fn before the attempt can be over. It does nothing if it is.
func (x *settling) unlessOver(fn func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over == nil {
		fn()
	}
}

// certain reports whether the outcome is final. trusted says that only the loss of the session can keep an
// outcome that is being written from being recorded, unless etcd refuses what is attached.
func (x *settling) certain(trusted bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over != nil || !x.writing {
		return x.final
	}
	return trusted && len(x.ifs)+len(x.then) == 0
}

// notice returns what an operator should know of the end: the outcome is unknown, or its result is not kept.
func (x *settling) notice() (unknown bool, unkept error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.unknown, x.unkept
}

// continues reports whether an attempt remains open after a try to settle it that has returned err.
func continues(err error) bool { return errors.Is(err, ErrConflict) || errors.Is(err, errRejected) }
