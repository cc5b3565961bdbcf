package record

import (
	"slices"
	"strings"
	"time"
)

// Run is the value of a run record: the claim of a tick, and later its history.
type Run struct {
	header
	State   string  `json:"state"`
	Attempt int     `json:"attempt"`
	Owner   string  `json:"owner"`
	Lease   int64   `json:"lease"`
	StartMS int64   `json:"start"` // by the holder's wall clock
	EndMS   int64   `json:"end,omitempty"`
	Error   string  `json:"error,omitempty"`
	By      string  `json:"by,omitempty"`      // the operator who unlocked it
	Final   bool    `json:"final,omitempty"`   // it failed, and is not tried again: AtMost has passed
	Earlier []Ended `json:"earlier,omitempty"` // the attempts before, oldest first
	Request string  `json:"request,omitempty"` // the nonce of the RequestedRun for which it was started

	CooledMS int64 `json:"cooled,omitempty"` // when Unlock has ended its cooldown after it; 0: it has not
	Token    int64 `json:"token,omitempty"`  // of a lost run, if its record was written again since the claim, by that Unlock
}

// Free returns when a run that has ended lets its job start again, with a cooldown of least: Unlock may have ended the run, or
// the cooldown after it.
func (r Run) Free(least time.Duration) int64 {
	until := r.StartMS + least.Milliseconds()
	switch {
	case r.State == RunUnlocked:
		until = r.EndMS
	case r.CooledMS != 0:
		until = min(until, r.CooledMS)
	}
	return max(until, r.EndMS)
}

// Ended is an attempt at a tick before the last one.
type Ended struct {
	Attempt int    `json:"attempt"`
	State   string `json:"state"` // running, if it was lost
	Owner   string `json:"owner"`
	StartMS int64  `json:"start"`
	EndMS   int64  `json:"end,omitempty"`
	Error   string `json:"error,omitempty"` // the beginning of it
}

// The bounds of Earlier: so many attempts are kept, the latest, each with so many bytes of its error and its owner.
const (
	maxEarlier  = 10
	earlierText = 128
)

// Again returns the attempts before the next one at the same tick: those of r, and r itself.
func (r Run) Again() []Ended {
	if r.Attempt < 1 {
		return nil
	}
	all := append(slices.Clip(r.Earlier), Ended{r.Attempt, r.State, cut(r.Owner, earlierText), r.StartMS, r.EndMS, cut(r.Error, earlierText)})
	return all[max(0, len(all)-maxEarlier):]
}

// The states of a run. A running one whose lock is gone was lost.
const (
	RunRunning  = "running"
	RunDone     = "done"
	RunFailed   = "failed"
	RunUnlocked = "unlocked"
)

// Lock is the value of a job's lock.
type Lock struct {
	header
	Nonce   string `json:"nonce"` // unique together with Lease
	Lease   int64  `json:"lease"`
	Tick    string `json:"tick"`
	Attempt int    `json:"attempt"`
	Owner   string `json:"owner"`
	AtMS    int64  `json:"at"`
}

// Settings is what the live users of a job agree on, as a text: see SettingsText. A claim compares the whole value, as it
// was read.
type Settings struct {
	header
	Text string `json:"settings"`
}

// Pause is the value of a pause key: the operator who has paused a job, and the reason.
type Pause struct {
	header
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	AtMS   int64  `json:"at"`
}

// RequestedRun asks the processes of a job to run it now.
type RequestedRun struct {
	header
	Nonce  string `json:"nonce"`
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	SentMS int64  `json:"sent"` // by the operator's clock, for people only: no tick is made of it
}

// Plan is the schedule of a job, as the processes that have it last wrote it.
type Plan struct {
	header
	Schedule string  `json:"schedule"`       // by which processes compare it: a period, or fire times of 2024 and hashes
	Text     string  `json:"text,omitempty"` // of a crontab
	Zone     string  `json:"zone,omitempty"`
	DueMS    int64   `json:"due,omitempty"`     // the first fire time after the last start, or after the job was new
	NextMS   []int64 `json:"next,omitempty"`    // fire times to come: the next ones, and some later ones
	Sparse   int     `json:"sparse,omitempty"`  // how many of them, at the end, do not follow the one before
	Called   bool    `json:"called,omitempty"`  // calls have written it, of a job that no process has between two ticks
	LateMS   int64   `json:"late_ms,omitempty"` // by how much these calls may come after a fire time
	AliveMS  int64   `json:"alive,omitempty"`   // when a process had the job last, to within about a day
	Former   string  `json:"former,omitempty"`  // the schedule of a plan that was removed: of that only due and alive are left
}

// Removed returns what is stored in place of a plan that is removed, of a job that a process had last at a time: one that has the
// job later finds by it which fire times were missed.
func (p Plan) Removed(alive int64) Plan {
	return Plan{Former: p.Schedule, DueMS: p.DueMS, AliveMS: alive}
}

// Kept is how long a plan is kept after the last process that had the job was alive. One that calls have written counts for as
// long after the fire time for which none has come.
const Kept = 7 * 24 * time.Hour

// clocksApart is what the clocks of two processes may differ by, both of which have written a plan.
const clocksApart = time.Minute

// Gone reports of a plan that no live process has whether that is known of its job: not if calls have written the plan, if the job
// was run without it since, or if no process has had it for a week in which it was not paused or resumed. Operated is when it was
// paused or resumed last, and ran the start of its latest run, or 0.
func (p Plan) Gone(now time.Time, paused bool, operated, ran int64) bool {
	switch {
	case p.Schedule == "", p.Called, ran > p.AliveMS+clocksApart.Milliseconds():
		return false
	}
	return paused || now.UnixMilli() <= max(p.AliveMS, operated)+Kept.Milliseconds()
}

// Current reports whether calls have written the plan, and it counts at a time although no process has the job. Operated is when
// the job was resumed last, or 0.
func (p Plan) Current(now time.Time, operated int64) bool {
	return p.Called && now.UnixMilli() <= max(p.DueMS, operated)+p.LateMS+Kept.Milliseconds()
}

// Due returns the fire time that is due after a start or a resumption, or 0 if the plan does not show it. Beyond the list of a plan
// that calls have written, which no process renews, a call is due by the greatest distance of the list later.
func (p Plan) Due(after int64) int64 {
	row := p.InRow()
	switch next := p.Next(after); {
	case p.DueMS > after:
		return p.DueMS // whatever was before
	case !p.Called || len(row) < 2:
		return p.Later(after)
	case next != 0:
		return next
	}
	var most int64
	for n := range len(row) - 1 {
		most = max(most, row[n+1]-row[n])
	}
	return after + most
}

// InRow returns the fire times of the plan that follow each other.
func (p Plan) InRow() []int64 { return p.NextMS[:max(0, len(p.NextMS)-max(0, p.Sparse))] }

// Next returns the fire time that follows a time, or 0 if the plan does not have it.
func (p Plan) Next(after int64) int64 { return firstAfter(p.InRow(), after) }

// Later returns a fire time after a time, the first that the plan has, or 0. There may be others before it.
func (p Plan) Later(after int64) int64 { return firstAfter(p.NextMS, after) }

func firstAfter(times []int64, after int64) int64 {
	for _, at := range times {
		if at > after {
			return at
		}
	}
	return 0
}

// Until returns the last fire time that the plan has, or 0.
func (p Plan) Until() int64 {
	if len(p.NextMS) == 0 {
		return 0
	}
	return p.NextMS[len(p.NextMS)-1]
}

// User has the names of jobs that a process has.
type User struct {
	header
	Owner string   `json:"owner"`
	Jobs  []string `json:"jobs"`
}

// Reported is the latest run of a job whose loss was reported.
type Reported struct {
	header
	Token int64  `json:"token"`
	By    string `json:"by"`
}

// Operated names the operator who has paused or resumed a job last.
type Operated struct {
	header
	Nonce string `json:"nonce"` // of that call
	By    string `json:"by"`
	AtMS  int64  `json:"at"` // of the last Pause or Resume
	// Revision is that of the last Pause or Resume, if another operation has come since.
	Revision int64 `json:"revision,omitempty"`
}

// Clock is the time of a process.
type Clock struct {
	header
	Owner string `json:"owner"`
	AtMS  int64  `json:"at"`
}

// HoldOwner is how the owner of a session begins that 'etcdkit hold' leaves in etcd: no process renews it, and its lease expires at the
// end of the permit, which is no loss.
const HoldOwner = "etcdkit hold "

// Period is what begins the period in the settings of a job, which are a text.
const Period = ", Every "

// Least is what begins AtLeast in the settings of a job.
const Least = ", AtLeast "

// Fires is what begins the fire times in the settings of a job, which have the place of the period.
const Fires = "fire time like "

// SettingsText returns the settings of a job for people: the fire times are not called a period.
func SettingsText(settings string) string {
	return strings.Replace(settings, Period+Fires, ", "+Fires, 1)
}

// PeriodOf returns the period in the settings of a job. ok is false if they have none, as those of a
// job whose schedule is one of times of day.
func PeriodOf(settings string) (d time.Duration, ok bool) {
	_, text, _ := strings.Cut(settings, Period)
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0
}

// LeastOf returns AtLeast of the settings of a job, or 0.
func LeastOf(settings string) time.Duration {
	_, text, _ := strings.Cut(settings, Least)
	text, _, _ = strings.Cut(text, ",")
	d, _ := time.ParseDuration(text)
	return max(0, d)
}

// Encode writes a record.
func (r Run) Encode() string { r.Version = version; return encode(r) }

// Encode writes a record.
func (r Lock) Encode() string { r.Version = version; return encode(r) }

// Encode writes a record.
func (r Settings) Encode() string { r.Version = version; return encode(r) }

// Encode writes a record.
func (r Pause) Encode() string { r.Version = version; return encode(r) }

// Encode writes a record.
func (r RequestedRun) Encode() string { r.Version = version; return encode(r) }

// Encode writes a record.
func (p Plan) Encode() string { p.Version = version; return encode(p) }

// Encode writes a record.
func (r User) Encode() string { r.Version = version; return encode(r) }

// Encode writes a record.
func (r Reported) Encode() string { r.Version = version; return encode(r) }

// Encode writes a record.
func (r Operated) Encode() string { r.Version = version; return encode(r) }

// Encode writes a record.
func (r Clock) Encode() string { r.Version = version; return encode(r) }

// DecodeRun reads a Run.
func DecodeRun(b []byte) (r Run, ok bool) {
	r, ok = decode[Run](b)
	return r, ok && r.Attempt >= 1
}

// DecodeLock reads a Lock.
func DecodeLock(b []byte) (r Lock, ok bool) { return decode[Lock](b) }

// DecodeSettings reads a Settings.
func DecodeSettings(b []byte) (r Settings, ok bool) { return decode[Settings](b) }

// DecodePause reads a Pause.
func DecodePause(b []byte) (r Pause, ok bool) { return decode[Pause](b) }

// DecodeRequestedRun reads a RequestedRun.
func DecodeRequestedRun(b []byte) (r RequestedRun, ok bool) { return decode[RequestedRun](b) }

// DecodePlan reads a Plan. Its fire times are in order.
func DecodePlan(b []byte) (p Plan, ok bool) {
	p, ok = decode[Plan](b)
	return p, ok && slices.IsSorted(p.NextMS)
}

// DecodeUser reads a User.
func DecodeUser(b []byte) (r User, ok bool) { return decode[User](b) }

// DecodeReported reads a Reported.
func DecodeReported(b []byte) (r Reported, ok bool) { return decode[Reported](b) }

// DecodeOperated reads an Operated.
func DecodeOperated(b []byte) (r Operated, ok bool) { return decode[Operated](b) }

// DecodeClock reads a Clock.
func DecodeClock(b []byte) (r Clock, ok bool) { return decode[Clock](b) }
