package testkit

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/observe"
)

// Trace is what tests wait for, one function for each. Any of them may be nil.
type Trace struct {
	Waiting        func(observe.Waiting)
	Acquired       func(observe.Call, observe.Outcome) // before the caller has the permit
	Released       func(observe.Call, observe.Outcome) // when etcd has confirmed it, or the permit is kept
	Unconfirmed    func(*concurrency.UnconfirmedError)
	Lost           func(*concurrency.LostError) // by ReleaseID, too
	SessionLost    func(lease clientv3.LeaseID, cause error)
	SessionRenewed func(lease clientv3.LeaseID)
}

// Hooks returns the hooks that call these functions.
func (t Trace) Hooks() []observe.Hooks {
	return []observe.Hooks{{
		Start: func(_ context.Context, c observe.Call) (context.Context, func(observe.Outcome)) {
			return nil, func(o observe.Outcome) { t.ended(c, o) }
		},
		Event: func(_ context.Context, e observe.Event) {
			switch e := e.(type) {
			case observe.Waiting:
				call(t.Waiting, e)
			case observe.SessionLost:
				if t.SessionLost != nil {
					t.SessionLost(clientv3.LeaseID(e.Lease), e.Cause)
				}
			case observe.SessionRecovered:
				call(t.SessionRenewed, clientv3.LeaseID(e.Lease))
			}
		},
	}}
}

func (t Trace) ended(c observe.Call, o observe.Outcome) {
	switch c.Op {
	case observe.Acquire, observe.Campaign:
		if t.Acquired != nil && o.Result == observe.Granted {
			t.Acquired(c, o)
		}
	case observe.Hold, observe.Lead:
		lost, isLost := o.Err.(*concurrency.LostError) //nolint:errorlint // hooks get it as it is
		switch {
		case isLost:
			call(t.Lost, lost)
		case o.Result == observe.Unconfirmed:
			call(t.Unconfirmed, o.Err.(*concurrency.UnconfirmedError)) //nolint:errorlint // likewise
		case t.Released != nil:
			t.Released(c, o)
		}
	}
}

// call calls a function, if there is one.
func call[T any](f func(T), with T) {
	if f != nil {
		f(with)
	}
}
