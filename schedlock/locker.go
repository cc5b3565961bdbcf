package schedlock

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/members"
)

// Options configure a Locker. nil means all defaults.
type Options struct {
	// Keep is the number of run records that are kept of each job. Defaults to 20; at most 1000.
	// Old records are removed when a run of the job ends.
	Keep int
	// KeepFor is the age up to which run records are kept. Defaults to 30 days. The latest record
	// of a job is kept at any age.
	KeepFor time.Duration
	// MaxSkew is the difference that is allowed between the clocks of the fleet. A tick that is
	// further in the future is refused. The record of such a tick, by a process with a faster clock,
	// does not keep earlier ticks from starting. Defaults to one minute.
	MaxSkew time.Duration
	// Sticky prefers the same process for all ticks of a job, as long as that process lives.
	// Defaults to false: the preferred process changes from tick to tick.
	Sticky bool
	// Done is called with the result and the error of each call: for metrics and alerts, in
	// particular under a cron library, which drops both. The goroutine that made the call calls it.
	// Defaults to nothing; the session's Logger gets failures of such calls in any case.
	Done func(Result, error)
	// Lost is called with the record of a run that was lost: its process died, was partitioned or was paused
	// for longer than its session's TTL. A process that uses the job calls it, not the one whose run was
	// lost: within the TTL of the loss or, if no process was alive, when the next one begins to use the job.
	// In the whole fleet a loss is reported at least once, usually once, whether or not the process that
	// does so has Lost set: set it in all of them. It must return soon. A run whose end was not confirmed (Result.Unconfirmed) is
	// lost for other processes. Defaults to nothing; the session's Logger gets a warning in any case.
	Lost func(Record)
	// Now is the wall clock that decides which ticks have come, for tests and simulations. It must
	// be safe for concurrent use. It does not affect how long runs and leases last: the machine's
	// own clock measures that. Defaults to time.Now.
	Now func() time.Time

	beat   time.Duration // between two publications of this process's time
	settle time.Duration // within which plans are looked at after a change
}

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	out.Keep = cmp.Or(out.Keep, 20)
	out.KeepFor = cmp.Or(out.KeepFor, 30*24*time.Hour)
	out.MaxSkew = cmp.Or(out.MaxSkew, time.Minute)
	out.beat = cmp.Or(out.beat, beat)
	out.settle = cmp.Or(out.settle, settle)
	if out.Now == nil {
		out.Now = time.Now
	}
	switch {
	case out.Keep < 1 || out.Keep > 1000:
		return out, invalid("Options.Keep %d is not between 1 and 1000", out.Keep)
	case out.KeepFor < smallest:
		return out, invalid("Options.KeepFor %v is below a millisecond", out.KeepFor)
	case out.MaxSkew < smallest:
		return out, invalid("Options.MaxSkew %v is below a millisecond", out.MaxSkew)
	}
	return out, nil
}

// Locker runs the jobs of one namespace in this process. One Locker per session is enough; it lives
// as long as its session. It is safe for concurrent use.
type Locker struct {
	sess   *engine.Session
	client *members.Etcd
	kv     clientv3.KV // of the session
	space  keyspace.Space
	opts   Options
	log    *zap.Logger
	plans  *planner
	clocks *clocks
	turns  chan struct{} // one for each claim in flight

	mu      sync.Mutex
	jobs    map[string]*job   // by range
	refused map[string]string // by name: the reason, already logged, why the last call of a job was refused
}

// New returns a Locker on a session. It sends nothing to etcd before it returns; in the background
// it then watches the jobs of the session's namespace and publishes the time of this process. Close
// the session to end it: Close waits for the active runs. New returns ErrInvalid if the session is
// nil or an option is out of range, and ErrClosed if the session is closed.
func New(s *concurrency.Session, opts *Options) (*Locker, error) {
	if s == nil || engine.Of(s) == nil {
		return nil, fmt.Errorf("new locker: %w", invalid("the session is nil"))
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("new locker: %w", err)
	}
	sess := engine.Of(s)
	l := &Locker{sess: sess, client: sess.Etcd(), kv: sess.KV(), space: sess.Space(), opts: o, log: sess.Log(), jobs: map[string]*job{}, refused: map[string]string{}, turns: make(chan struct{}, turns)}
	l.plans = &planner{locker: l, jobs: map[string]*timetable{}, looked: map[string]bool{}, resumed: map[string]bool{}, others: map[string]time.Time{}, changed: make(chan struct{}, 1), put: map[int]string{}}
	l.clocks = &clocks{space: l.space, now: o.Now, peers: map[string]*peer{}}
	ctx, open := sess.Context(), true
	for _, work := range []func(){
		func() { sess.Source().Listen(ctx, l.space.Jobs(), l.resync, l.apply) },
		func() { sess.Source().Follow(ctx, l.space.Clocks(), 0, l.clocks) },
		func() { l.clocks.publish(sess.Accepting(), sess, o.beat) },
		func() { <-ctx.Done(); l.revokeAllSpares() },
	} {
		open = open && sess.Background(work)
	}
	if !open || ctx.Err() != nil {
		return nil, fmt.Errorf("new locker: %w", ErrClosed)
	}
	return l, nil
}

// Clocks returns the wall clocks of the other processes that run jobs of the namespace, as this
// process sees them. Ticks start by the clock of the process that claims first: a process whose
// clock is ahead starts jobs early, and one whose clock is behind finds its ticks claimed. Clocks
// reads no etcd and never fails.
func (l *Locker) Clocks() []Clock {
	return l.clocks.list(l.sess.Lease())
}
