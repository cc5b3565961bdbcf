package guard

import (
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// caught are the signals that end or stop neither of the two processes: the command gets those that are
// for it. They are caught and not ignored, since a program inherits what is ignored.
var caught = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGCONT, unix.SIGPIPE}

// catch has signals sent to a channel. Of those that this process ignores from its start, SIGHUP, as under
// nohup, SIGINT, as in a script's background, SIGTSTP, SIGTTIN and SIGTTOU stay ignored: by the command as well.
// Of others Go's runtime forgets it before any code of a program runs: the command has their defaults.
func catch(signals chan<- os.Signal) {
	for _, s := range caught {
		if ignoredAtStart&(1<<(s.(syscall.Signal)-1)) == 0 {
			signal.Notify(signals, s)
		}
	}
}

// ignoredAtStart is the set of signals that this process ignores, before it has caught any.
var ignoredAtStart = ignored()

func ignored() (set uint64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\nSigIgn:\t")
	text, _, _ := strings.Cut(rest, "\n")
	set, _ = strconv.ParseUint(text, 16, 64)
	return set
}

// ends reports whether a signal asks a command to end.
func ends(s syscall.Signal) bool {
	return s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGHUP || s == unix.SIGQUIT
}

// relay decides which signals the command gets from the guard. A terminal, a supervisor and timeout(1) send
// theirs to a process group, in which the front process, the guard and the command are: then the front process asks
// for one that the guard has got itself, and so has the command. A second one would have many programs
// give up what they do at their end. One that comes later to the front process alone is passed on.
type relay struct {
	began time.Time // the command's start
	own   map[syscall.Signal]receipt
	asked []passed
}

// receipt is what the guard has got of a signal.
type receipt struct {
	last time.Time // when it has got it last
	left int       // how often, without those that the front process has asked for
	used time.Time // when that has asked for one of them last
}

// passed is a signal that the front process has got.
type passed struct {
	signal syscall.Signal
	at     time.Time
	group  bool // the whole process group has got it
}

// A signal to the process group reaches its processes within together. A command that has run for less may have
// been started after the signal. The front process may ask later, within late: it has to run, and to write.
const (
	together = 100 * time.Millisecond
	late     = time.Second
)

func newRelay(began time.Time) relay { return relay{began: began, own: map[syscall.Signal]receipt{}} }

// got notes a signal to the guard.
func (r *relay) got(s syscall.Signal, now time.Time) {
	own := r.own[s]
	if now.Sub(own.last) > late {
		own.left = 0
	}
	own.last = now
	own.left++
	r.own[s] = own
}

// fresh reports whether the guard has got a signal just now, after the command's start: then its process group
// may have it too.
func (r *relay) fresh(s syscall.Signal, now time.Time) bool {
	last := r.own[s].last
	return last.Sub(r.began) > together && now.Sub(last) < late
}

// ask notes a signal to the front process.
func (r *relay) ask(s syscall.Signal, now time.Time) {
	r.asked = append(r.asked, passed{signal: s, at: now})
}

// due returns the next signal to pass on now, in their order.
func (r *relay) due(now time.Time) (s passed, ok bool) {
	if len(r.asked) == 0 {
		return s, false
	}
	s = r.asked[0]
	own := r.own[s.signal]
	s.group = own.last.Sub(r.began) > together && own.last.After(s.at.Add(-late)) &&
		(own.left > 0 || s.at.Sub(own.used) < together) // the kernel makes one of two that come together
	if !s.group && now.Sub(s.at) < together {
		return s, false
	}
	if s.group {
		own.left, own.used = max(0, own.left-1), s.at
		r.own[s.signal] = own
	}
	r.asked = r.asked[1:]
	return s, true
}

// next returns when to ask for due again at the latest.
func (r *relay) next(now time.Time) time.Duration {
	if len(r.asked) == 0 {
		return math.MaxInt64
	}
	return r.asked[0].at.Add(together).Sub(now)
}
