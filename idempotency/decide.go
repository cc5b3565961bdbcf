package idempotency

import "context"

// decision is what a call of Begin does next.
type decision int

const (
	awaitAttempt decision = iota + 1
	awaitUndo             // this process removes the record of a claim whose function was never called
	askMajority
	replayOutcome
	refuseInProgress
	refuseUnreadable
	refuseMismatch
	refuseUnknown
	admitNew // an attempt may begin if there is room: see admit
	refuseNearQuota
	refuseScopeFull
	claimKey
)

// known is what a call knows of its request.
type known struct {
	state
	agrees    bool // the call's payload is that of the record
	undoing   bool // this process is removing the record, whose function was never called
	confirmed bool // a majority was asked twice
}

// asked is what the caller asks for.
type asked struct {
	waits   bool
	refuses bool // OnLost is Refuse
}

// decide returns what to do about a request. What one member has answered may be outdated: only an
// outcome is taken from it, since an outcome does not change, but for an operator's correction of an operator's.
func decide(k known, q asked) decision {
	switch {
	case k.kv != nil && !k.majority && !(k.finished() && k.agrees):
		return askMajority
	case k.bad:
		return refuseUnreadable
	case k.kv != nil && !k.agrees:
		return refuseMismatch
	case k.finished():
		return replayOutcome
	case k.claim && q.waits:
		return awaitAttempt
	case k.lost() && k.undoing && q.waits:
		return awaitUndo
	case k.claim, k.lost() && k.undoing:
		return refuseInProgress
	case k.lost() && (k.rec.Refuse || q.refuses) && !k.confirmed: // taken back since it was read, perhaps
		return askMajority
	case k.lost() && (k.rec.Refuse || q.refuses):
		return refuseUnknown
	}
	return admitNew
}

// admission returns whether an attempt may begin. A request that was not found at one member
// may have a record all the same, so a majority is asked before it is refused for lack of room.
func admission(majority, room, scopeFull bool) decision {
	switch {
	case room && !scopeFull:
		return claimKey
	case !majority:
		return askMajority
	case !room:
		return refuseNearQuota
	}
	return refuseScopeFull
}

func (c *call) decide(st state, confirmed bool) decision {
	k := known{state: st, agrees: st.kv != nil && st.prints().agree(c.print), undoing: st.lost() && c.store.takesBack(st), confirmed: confirmed}
	return decide(k, asked{waits: c.set.waits() && c.bound.Err() == nil, refuses: c.set.OnLost == Refuse})
}

// admit decides whether an attempt may begin. It returns an error of etcd's or ctx's.
func (c *call) admit(ctx context.Context, st state) (decision, error) {
	room, full := c.store.space.enough(), false
	if room && st.kv == nil {
		var err error
		if full, err = c.countScope(ctx); err != nil {
			return 0, err
		}
	}
	return admission(st.majority, room, full), nil
}
