package concurrency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/door"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/rate"
	"github.com/etcdkit/etcdkit/internal/ratelimit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/observe"
)

// Rate is how often something may happen.
type Rate struct {
	PerSecond float64 // from 1e-5, which is about once a day, to 1e6
	// Burst is how many may happen at once after a quiet time; at least 1.
	Burst int
}

func (r Rate) pure() rate.Rate { return rate.Rate{PerSecond: r.PerSecond, Burst: int64(r.Burst)} }

func publicRate(r rate.Rate) Rate { return Rate{r.PerSecond, int(r.Burst)} }

// RateLimiter limits how often something happens in all processes whose sessions share its prefix
// and namespace: in every window of any length T at most Rate.PerSecond × T + Rate.Burst calls of
// Allow and Wait succeed. It limits how often work begins, not how much of it runs at the same time:
// for that, see Semaphore.
//
// The rate is divided into shares, which are the permits of a semaphore. A process acquires shares
// while it is called, and takes tokens from its shares without asking etcd. Which process holds a
// share rests on etcd's revision order alone. Clocks decide how fast tokens accrue, and when a
// process that cannot reach etcd stops to trust its shares. The promise assumes that no clock runs
// more than 1,000 ppm faster than it should, and what the package documentation assumes of a
// permit's context. It counts the moment at which a call decides to succeed, which is before it
// returns: a process that is paused in between does its work later.
//
// SetRate that lowers neither the rate nor the burst is covered by the promise with the new ones; processes may acquire
// their shares anew then, for about a second. If it lowers one of them, the new rate is in force in
// a process when the process has read it: within about a second, or, if it cannot reach etcd, within
// its session's TTL. Windows that begin before that are excluded; they are bounded by the sum of both
// rates and both bursts.
//
// A process begins without a token: a share that it gains is empty, since its former holder may have
// used its tokens. So the first calls of a process wait, or are refused, for up to about a second
// (RateExceededError.Starting).
//
// A rate below one per second is a single share, whose tokens are stored in etcd: a process that gains the
// share begins with the tokens that the former holder has left, and those that have accrued since, as far as etcd's
// leases show that (in whole seconds). So a slow rate serves processes that live for seconds, and the whole
// burst is there for the first one after a quiet time. A process that dies keeps the share until its lease
// ends, and its successor begins with what has accrued since it stopped for certain, a TTL after it last
// noted in etcd that it takes tokens. The clock of etcd's leader is assumed to be right as those of processes are.
//
// If a process needs more shares, others that hold more than their part, or more than they use,
// return some: it usually has its part within one to two seconds. If there are more processes than
// shares, they take turns of a second, or of the time in which one share gives one token if that is
// longer. A process that is not called for a minute returns all of its shares. A process that dies
// keeps its shares until its lease ends, and the fleet has so much less of the rate. The whole burst
// is there only for a process that holds all shares.
//
// Options.Rate of the packages limithttp and limitgrpc has each request take a token.
//
// The shares of a session count for SessionOptions.MaxPermits, and hooks see them as permits of the
// limiter's name (observe.Rate). Calls of Allow and Wait are counted for them (observe.RateCalls).
//
// A RateLimiter is safe for concurrent use and need not be closed. All RateLimiter values of one
// name on one session share one set of shares.
type RateLimiter door.Door[*rateLimiter]

// rateLimiter is what is behind a RateLimiter.
type rateLimiter struct {
	shares  *ratelimit.Shares
	queue   *sessionQueue
	name    string
	want    rate.Rate
	adopt   bool
	checked atomic.Bool // the stored rate was compared with ours
}

func (l *RateLimiter) in() *rateLimiter { return door.In(l) }

// RateLimiterOptions configure a RateLimiter. nil means all defaults.
type RateLimiterOptions struct {
	// AdoptRate accepts the rate that is stored in etcd, instead of failing with a
	// *RateMismatchError if it differs from this program's. This program's rate then counts only if
	// none is stored. Set it in all programs if operators change the rate with SetRate.
	// Defaults to false.
	AdoptRate bool
}

// NewRateLimiter returns the rate limiter of that name. It does no I/O. The first call of Allow or
// Wait stores the rate in etcd if none is stored; from then on the stored rate is in force, and
// SetRate changes it for all processes. Until a call has found the two rates equal, each call
// compares them, and returns a *RateMismatchError if they differ.
//
// It returns ErrInvalid if the session is nil, the rate is out of range (see Rate), or the name is
// not valid (see NewSemaphore); and ErrClosed if the session is closed.
func NewRateLimiter(s *Session, name string, r Rate, opts *RateLimiterOptions) (*RateLimiter, error) {
	q, err := s.queue(keyspace.Rate, name, 0)
	if err == nil {
		err = checkRate(r)
	}
	if err != nil {
		return nil, fmt.Errorf("new rate limiter %q: %w", name, err)
	}
	l := &rateLimiter{shares: engine.Own(s).shares(q), queue: q, name: name, want: r.pure(), adopt: opts != nil && opts.AdoptRate}
	return (*RateLimiter)(door.New(l)), nil
}

func checkRate(r Rate) error {
	if err := r.pure().Check(); err != nil {
		return invalid("%w", err)
	}
	return nil
}

// Allow takes a token if this process has one now. It returns nil if so: the caller may proceed. It
// does no I/O and does not block. Calls of Wait that wait in this process come first. A process that
// calls Allow less often than once a minute has no share at each call, and is always refused: use
// Wait there.
//
// Otherwise it returns
//
//   - a *RateExceededError (ErrRateExceeded) if there is no token, which is also so while this
//     process has no share of the rate yet: the call makes it acquire one;
//   - an *UnavailableError (ErrUnavailable) if this process may take no token because etcd does not answer;
//   - a *RateMismatchError (ErrLimitMismatch) if the stored rate is not this program's;
//   - ErrClosed; or why this process may take no token although etcd answers: ErrTooMany, an error of
//     etcd's, or that of a stored rate that cannot be read.
func (l *RateLimiter) Allow() error { return l.in().Allow(context.Background()) }

// Wait blocks until it has taken a token, or ctx is done. It returns nil if the caller may proceed.
// Calls in one process are served in their order; there is no order among processes.
//
// Wait fails at once with a *RateExceededError (ErrRateExceeded), without ctx's error, if ctx has a
// deadline before its turn: the calls that wait before it in this process, and it, take longer even if
// this process gets the whole rate. It does so as soon as that is known, which is after it has read the
// rate, and of a rate below one per second after it has the share. RateExceededError.RetryAfter says
// when the turn would come. The call has failed even if its turn would have come earlier after all, because
// SetRate raises the rate or a call before it ends without a token: call again.
//
// Otherwise it returns a *RateMismatchError (ErrLimitMismatch); ErrClosed; why this process may take
// no token although etcd answers, as Allow does; or ctx's error. If the call has waited, that is joined with
// what Allow would return then, such as an *UnavailableError or a *RateExceededError. No token is taken then.
func (l *RateLimiter) Wait(ctx context.Context) error {
	in := l.in()
	var begun time.Time
	if in.queue.sess.Hooks().On() { // without hooks, the clock is not read
		begun = time.Now()
	}
	err := in.public(in.shares.Wait(ctx, in))
	in.ended(err, ctx.Err(), begun)
	if err != nil {
		return fmt.Errorf("wait for a token of %q: %w", in.name, err)
	}
	return nil
}

// SetRate changes the rate for all processes: see RateLimiter for when it is in force. A Burst of 0 keeps
// the stored one, and is 1 if none is stored. A rate cannot be 0; to stop what it limits, use a Semaphore beside it.
//
// SetRate changes a rate that is stored; the same rate writes nothing. For another name it returns ErrNoLimit, since the name may
// be misspelled, unless the option CreateLimit is given or this session has seen a rate of that name
// before. It returns ErrInvalid if the rate is out of range, ErrClosed, ctx's error, or one of
// etcd's; after the last three the rate may be changed or not. Of two concurrent calls the later one
// wins, in etcd's order.
func (l *RateLimiter) SetRate(ctx context.Context, r Rate, opts ...SetLimitOption) error {
	in := l.in()
	q := in.queue
	c, err := newLimitChange(1, opts)
	if err == nil {
		err = checkRate(Rate{r.PerSecond, cmp.Or(r.Burst, 1)})
	}
	if err == nil {
		err = q.do(ctx, func(ctx context.Context) error {
			return q.Set(ctx, func(was mirror.View) (int64, record.Rate) {
				return ratelimit.Change(was, Rate{r.PerSecond, cmp.Or(r.Burst, int(was.Limits.Own.Rate.Burst), 1)}.pure())
			}, c.create)
		})
	}
	if errors.Is(err, ErrNoLimit) {
		err = fmt.Errorf("%w: if the name is right, pass CreateLimit", err)
	}
	if err != nil {
		return q.failed("set rate of", err)
	}
	in.checked.Store(true) // this program agrees with the rate that it sets
	in.shares.Replaced(ctx)
	return nil
}

// Configured implements ratelimit.User.
func (l *rateLimiter) Configured() rate.Rate { return l.want }

// Accepts returns a *RateMismatchError if the stored rate is not this program's.
func (l *rateLimiter) Accepts(stored rate.Rate) error {
	if l.checked.Load() {
		return nil
	}
	switch q := l.queue; {
	case stored == l.want:
	case l.adopt:
		q.sess.Background(func() { l.adopted(publicRate(stored)) }) // the shares are locked
	default:
		return &RateMismatchError{Name: l.name, Stored: publicRate(stored), Wanted: publicRate(l.want)}
	}
	l.checked.Store(true)
	return nil
}

// adopted logs the rate that is in force in place of the program's.
func (l *rateLimiter) adopted(stored Rate) {
	if l.queue.Adopted.IsNew(stored) {
		l.queue.sess.Log().Info("the rate in etcd is in force, and not the one of this program", zap.String("name", l.name),
			zap.Any("in_etcd", stored), zap.Any("in_program", publicRate(l.want)), zap.String("changed_by", "SetRate"))
	}
}

// longWait is a wait for a token that is reported: a rate that is used up, and whose calls have no deadline, refuses
// none of them.
const longWait = 10 * time.Second

// ended counts a call that returns err, if there are hooks that learn of it. ended is the error of its ctx, and begun
// is when it began to wait, or zero.
func (l *rateLimiter) ended(err, ended error, begun time.Time) {
	if !l.queue.sess.Hooks().Listens() {
		return
	}
	result, reason := endOfAsking(err, ended, false)
	took := time.Since(begun)
	switch {
	case result == observe.Error && errors.Is(err, ErrRateExceeded):
		result, reason = observe.Refused, observe.Exceeded
	case err == nil && !begun.IsZero() && took > longWait && took.Seconds() > 2/l.shares.InForce(l.want).PerSecond:
		reason = observe.Waited
	}
	l.shares.Ended(result, reason)
}

// Allow is RateLimiter.Allow for work under ctx, for the middlewares.
func (l *rateLimiter) Allow(ctx context.Context) error {
	err := l.public(l.shares.Allow(ctx, l))
	if l.ended(err, nil, time.Time{}); err != nil {
		return fmt.Errorf("take a token of %q: %w", l.name, err)
	}
	return nil
}

// acquireShare acquires a share of a rate, and stores the division if none is stored.
func (q *sessionQueue) acquireShare(ctx context.Context, d rate.Division) (*ratelimit.Share, error) {
	r := request{doing: "acquire a share of", Request: queue.Request{Weight: 1}}
	p, err := terms{limit: d.Shares, rate: ratelimit.Stored(d.Rate, 1)}.acquire(ctx, q, r, nil)
	if err != nil {
		return nil, err
	}
	return &ratelimit.Share{Permit: p, Epoch: p.epoch, Token: p.token, Since: p.since}, nil
}

// public returns the error of a value by which the shares have refused a call, and another error as it is.
func (l *rateLimiter) public(err error) error {
	switch v := err.(type) { //nolint:errorlint // nothing wraps them
	case *queue.Outage:
		return unavailable(v.Outage)
	case *ratelimit.WaitEnd:
		format := "%w: %w"
		if _, exceeded := v.For.(*ratelimit.Exceeded); exceeded { //nolint:errorlint // likewise
			format = "%w while it waited: %w"
		}
		return fmt.Errorf(format, v.Ctx, l.public(v.For))
	case *ratelimit.Exceeded:
		e := &RateExceededError{Name: l.queue.name, Rate: publicRate(v.Rate), RetryAfter: v.RetryAfter, Waiting: v.Waiting, Starting: v.Starting}
		if v.Late {
			return fmt.Errorf("%w (calls that wait before this one: %d; its turn comes in %v or later, and its ctx ends in %v)",
				e, v.Waiting, v.Turn.Round(time.Millisecond), v.Left.Round(time.Millisecond))
		}
		return e
	}
	return err
}

// RateStatus is the state of a rate limiter at one revision of etcd.
type RateStatus struct {
	Name     string
	Rate     Rate
	Stored   bool // whether a rate is stored and readable
	Shares   int  // into how many the rate is divided
	Holders  []RateHolder
	Revision int64
	// Unreadable is why a rate that is stored cannot be read: it is of a later release, or damaged. It is nil otherwise.
	Unreadable error
}

// RateHolder is one session that has shares of a rate, or waits for some. Until its process has read a raise, each
// of them counts as the number of shares of the raised rate that it takes up.
type RateHolder struct {
	Owner   string // SessionOptions.Owner of its session
	Shares  int
	Waiting int       // shares that it waits for
	Since   time.Time // when it asked for the oldest of them, by its own clock
}

// Status reads the present state: which sessions have how many shares. It is linearizable. The
// holders are in the order of their oldest requests. It returns ErrClosed, ctx's error or one of
// etcd's.
func (l *RateLimiter) Status(ctx context.Context) (RateStatus, error) {
	q := l.in().queue
	read, err := q.now(ctx)
	v := read.View
	if err != nil {
		return RateStatus{}, q.failed("status of", err)
	}
	st := RateStatus{Name: q.name, Revision: v.Revision}
	d, err := ratelimit.DivisionOf(v)
	if err == nil {
		st.Stored, st.Rate, st.Shares = true, publicRate(d.Rate), int(d.Shares)
	} else if !errors.Is(err, limit.ErrNone) {
		st.Unreadable = err
	}
	at := map[int64]int{}
	for _, c := range ratelimit.ClaimsOf(v, d) {
		n, known := at[c.Slot.Lease]
		if !known {
			n = len(st.Holders)
			at[c.Slot.Lease] = n
			r := describe(c.Request)
			st.Holders = append(st.Holders, RateHolder{Owner: r.Owner, Since: r.Requested})
		}
		if c.Holds {
			st.Holders[n].Shares += int(c.Units)
		} else {
			st.Holders[n].Waiting += int(c.Units)
		}
	}
	return st, nil
}

// ErrRateExceeded: there is no token now. It always comes as a *RateExceededError.
var ErrRateExceeded = errors.New("the rate is exceeded")

// RateExceededError says that Allow found no token, or that Wait got none in time. errors.Is matches it with
// ErrRateExceeded.
type RateExceededError struct {
	Name string
	// Rate is in force in this process. It is zero if the process has not read it yet, or not since
	// it was idle.
	Rate Rate
	// RetryAfter is when this process has a token for one more call, as far as it knows. 0 means
	// that it is unknown, since the process has no share of the rate.
	RetryAfter time.Duration
	// Waiting is how many calls of Wait wait in this process, whose tokens come before that one.
	Waiting int
	// Starting says that this process has had no token since it began, since it was idle, or since a change of the
	// rate had it ask for its shares anew: whether the fleet has exceeded the rate is not known. Its first token comes
	// within about a second if not.
	Starting bool
}

// Error names the rate, and says whether this process lacks a share of it, or has one without a token.
func (e *RateExceededError) Error() string {
	switch {
	case e.Rate == (Rate{}):
		return "there is no token yet: this process has not read the rate"
	case e.RetryAfter == 0:
		return fmt.Sprintf("there is no token yet: this process has no share of the rate that it may use yet (%v per second, burst %d)", e.Rate.PerSecond, e.Rate.Burst)
	}
	return fmt.Sprintf("%v: %v per second, burst %d", ErrRateExceeded, e.Rate.PerSecond, e.Rate.Burst)
}

// Is reports whether target is ErrRateExceeded.
func (e *RateExceededError) Is(target error) bool { return target == ErrRateExceeded }

// RateMismatchError says that the rate of this program differs from the one stored in etcd. Either
// the program's configuration is out of date, or the stored rate is to be changed with SetRate;
// RateLimiterOptions.AdoptRate accepts the stored one as it is. errors.Is matches it with
// ErrLimitMismatch.
type RateMismatchError struct {
	Name           string
	Stored, Wanted Rate
}

// Error names both rates, and what would make them agree.
func (e *RateMismatchError) Error() string {
	return fmt.Sprintf("the rate is %v per second with a burst of %d in etcd, and %v with %d in this program (set RateLimiterOptions.AdoptRate, or call SetRate)",
		e.Stored.PerSecond, e.Stored.Burst, e.Wanted.PerSecond, e.Wanted.Burst)
}

// Is reports whether target is ErrLimitMismatch.
func (e *RateMismatchError) Is(target error) bool { return target == ErrLimitMismatch }
