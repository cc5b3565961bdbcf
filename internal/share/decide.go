package share

// Facts are what a process knows when a request asks how it runs.
type Facts struct {
	Trusted  bool  // the session's lease is trusted
	Outage   bool  // etcd has been silent for Options.Patience
	Limit    int64 // that was last read
	Sessions int64 // how many sessions share the limit, as last counted; 0 if that is not known
	Permits  int64 // weight of this process's work that began under permits, lost ones included
	Running  int64 // weight of this process's work under its share that has no permit yet
	Weight   int64 // of the request
}

// Verdict is how a request runs.
type Verdict int

// The verdicts.
const (
	Ask    Verdict = iota // it asks etcd for a permit
	Drain                 // it waits until no work under the share is without a permit, and then asks
	Run                   // it runs under the share
	Refuse                // the share has no room
)

// Size returns the share of one session: the sum of all is at most the limit.
func (f Facts) Size() int64 {
	if f.Sessions == 0 {
		return 0
	}
	return f.Limit / f.Sessions
}

// Decide returns how a request runs. A share is used only without a trusted lease: latency costs no
// lease. Work that began under a permit uses the share as well, since it may still run.
func (f Facts) Decide() Verdict {
	switch {
	case f.Trusted && f.Running > 0:
		return Drain
	case f.Trusted || !f.Outage:
		return Ask
	case f.Permits+f.Running+f.Weight <= f.Size():
		return Run
	}
	return Refuse
}
