package chaos

// Names of the single acts of nemeses from which guarantees are excepted. Each is
// declared in the history from just before until just after it; what it strikes
// is in Lease, in Token and in Attr["key"].
const (
	LeaseEnded     = "lease ended"     // revoked or expired by hand
	KeyDeleted     = "key deleted"     // by hand: a request, an ID, a presence key
	KeyOverwritten = "key overwritten" // a presence key, by hand
	KeyPlanted     = "key planted"     // a foreign key in the range of a queue
	LimitDamaged   = "limit damaged"   // unreadable or gone
)
