package concurrency

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Trace is a set of hooks into a session, for metrics, logs and tests. Any of them may be
// nil. They are called synchronously, by several goroutines at once and with no lock held: a
// hook may call anything of this package but Session.Close, which waits for hooks. The call
// that a hook reports on waits until the hook returns. While SessionLost runs the session
// takes no new lease, so SessionLost must not acquire a permit itself. No permit's context
// ends later because of a hook.
type Trace struct {
	// Waiting is called when a caller begins to wait for a permit, and again
	// every SessionOptions.ReportEvery while it waits.
	Waiting func(WaitInfo)
	// Acquired is called when a permit was granted, before its caller has it.
	Acquired func(AcquireInfo)
	// Released is called when the holder has released a permit and etcd has confirmed
	// that, which may be after Do or Release has returned; or when it is kept, see
	// SemaphoreOptions.Keep.
	Released func(ReleaseInfo)
	// Unconfirmed is called when the holder has released a valid permit and the
	// session's lease has ended before etcd has confirmed that. It is no loss. A permit
	// ends with one of Released, Unconfirmed and Lost.
	Unconfirmed func(*UnconfirmedError)
	// Lost is called when a permit ended otherwise.
	Lost func(*LostError)
	// SessionLost is called when the session's lease is lost, after its
	// permits' contexts have ended.
	SessionLost func(lease clientv3.LeaseID, cause error)
	// SessionRenewed is called when a lost session has a new lease.
	SessionRenewed func(lease clientv3.LeaseID)
}

// AcquireInfo describes a granted permit.
type AcquireInfo struct {
	Name   string // of the queue
	Token  int64  // of the request; with Keep or Handover several permits have it, one after the other
	Weight int
	Waited time.Duration // from the call to the grant
}

// ReleaseInfo describes a released permit.
type ReleaseInfo struct {
	Name  string
	Token int64         // as in AcquireInfo
	Held  time.Duration // from the grant to the release
}

// WaitInfo says why a call waits.
type WaitInfo struct {
	Name   string
	Token  int64         // of the waiting request
	Waited time.Duration // since the call
	Limit  int
	// Ahead is the number of requests before it, holders included. While it is far from its admission,
	// that is the number when it joined the queue, and so the greatest that is possible.
	Ahead int
	// Blocking are the holders, oldest first; at most the first ten. There are none while the request
	// is far from its admission.
	Blocking []Blocker
}

// Blocker is a holder that a waiter waits for. Renewed and ExpiresBy are zero in the first
// report.
type Blocker struct{ Request }

func (t *Trace) sessionLost(lease clientv3.LeaseID, err error) {
	if t.SessionLost != nil {
		t.SessionLost(lease, err)
	}
}

func (t *Trace) sessionRenewed(lease clientv3.LeaseID) { call(t.SessionRenewed, lease) }

// call calls a hook, if there is one.
func call[T any](hook func(T), with T) {
	if hook != nil {
		hook(with)
	}
}
