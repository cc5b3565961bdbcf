package idempotency

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
	admitNew // an attempt may begin if there is room: see admission
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
	case k.live && q.waits:
		return awaitAttempt
	case k.lost() && k.undoing && q.waits:
		return awaitUndo
	case k.live, k.lost() && k.undoing:
		return refuseInProgress
	case k.lost() && (k.rec.Refuse || q.refuses) && !k.confirmed: // taken back since it was read, perhaps
		return askMajority
	case k.lost() && (k.rec.Refuse || q.refuses):
		return refuseUnknown
	}
	return admitNew
}

// admission returns whether an attempt may begin. A request that was not found at one member
// may have a record all the same, so a majority is asked before it is refused for lack of room, and before its claim waits
// for a session that has no lease: etcd may grant none for lack of room.
func admission(majority, room, scopeFull, leased bool) decision {
	switch {
	case room && !scopeFull && (leased || majority):
		return claimKey
	case !majority:
		return askMajority
	case !room:
		return refuseNearQuota
	}
	return refuseScopeFull
}
