package keyspace

// SessionPart is the part of a namespace in which sessions are present.
const SessionPart = "session/"

// Parts returns the beginnings of all keys below the root of a space, one for each kind of what is kept. A user needs
// permissions for all of them; a key below none of them is foreign.
func Parts() []string {
	return []string{SessionPart, string(Semaphore) + "/", string(Mutex) + "/", string(Election) + "/", string(Rate) + "/", tokens, limiters, "sharing/", "request-id/", "job/", "clock/", "jobs-of/", "idempotency/", "change/"}
}
