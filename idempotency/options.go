package idempotency

import (
	"bytes"
	"slices"
	"time"
)

// Options configure a Store. nil means all defaults. What can also be said per call is
// meant for the calls that do not say it.
type Options struct {
	// SingleTenant lets keys have no Scope. Defaults to false.
	SingleTenant bool
	// Retain is for how long an outcome is kept after it was recorded, at least: leases
	// of etcd live longer after a change of its leader. Defaults to 24 hours; from one
	// second to a year.
	Retain time.Duration
	// RetainUnknown is for how long the record of a lost attempt is kept, counted from the
	// end of its process. Defaults to 7 days, or to Retain if that is longer; it cannot
	// be shorter than Retain.
	RetainUnknown time.Duration
	// MaxExecution bounds how long one attempt may take. Then its context ends with
	// ErrTooLong, and if it has not returned the session's margin later, it counts as
	// lost. Defaults to 15 minutes.
	MaxExecution time.Duration
	// OnLost says what becomes of a request whose attempt was lost. Defaults to TakeOver.
	OnLost LostPolicy
	// OnError says what becomes of a request whose function returned an error, as far as
	// its context had not ended: an attempt that was interrupted counts as lost.
	// The text of an error that is remembered is stored as it is, whatever the Codec.
	// Defaults to Forget for all errors.
	OnError func(error) Action
	// OnPanic says what becomes of a request whose function panicked, or called
	// runtime.Goexit. The text of a panic that is remembered is stored as it is. Defaults
	// to Abandon.
	OnPanic Action
	// MaxResult is the size in bytes, after Codec, up to which a result is kept.
	// Above it the outcome is recorded without: nothing is done twice, but duplicates
	// get an *OmittedError. Defaults to 8 MiB, at most 64 MiB. Results above 128 KiB go in
	// messages of up to 1 MiB: where etcd (--max-request-bytes) or the client
	// (MaxCallSendMsgSize) takes less, they are not kept either.
	MaxResult int
	// Codec changes results, details of failures and recovery points before they are
	// stored: to compress or to encrypt. It does not change the texts of failures, scopes
	// or operations. Defaults to nothing.
	Codec Codec
	// OldCodecs are further codecs that are understood, by their names. Defaults to none.
	OldCodecs []Codec
	// Secret keys the fingerprints of payloads, so that who can read etcd cannot find
	// out what was paid by trying. It must be the same in all processes. Defaults to
	// none.
	Secret []byte
	// OldSecrets are further secrets whose fingerprints match: what is begun is recorded
	// with Secret alone. To change the Secret, first add the new one here, in all processes;
	// then make it the Secret and put the former one here, in all processes. Remove that one
	// when RetainUnknown and the longest Retain of any call have passed, one after the other,
	// since the last process with it as Secret has ended; such a process may work for
	// MaxExecution after its last new request. Without a secret that is still needed,
	// duplicates are refused with ErrMismatch, and nothing runs twice. NoSecret stands for no
	// Secret; an empty entry is ErrInvalid. Each entry costs one more hash of the payload per
	// call. Defaults to none.
	OldSecrets [][]byte
	// CacheBytes bounds what this process keeps of finished records, for duplicates that
	// come soon after. Defaults to 8 MiB; below zero, nothing is kept.
	CacheBytes int
	// CacheFor is for how long, and so how long a record that was deleted by hand, or has
	// expired just after it was read, may still be replayed by other processes. None is
	// kept for longer than the Retain of its call. Defaults to 10 seconds.
	CacheFor time.Duration
	// MaxPerScope bounds how many records a scope has in etcd, as Store.CountScope counts them: an
	// attempt in progress counts twice. Beyond it a new request of that scope is refused with
	// a *ScopeFullError, so that one tenant cannot fill the store; all that has a record goes
	// on, replays and taking over included. It bounds the number of records, not their size,
	// and it is soft: a process uses a count for 0.1 ms per key that was counted, from 10 ms
	// to 10 s, adds what it begins itself, and does not see what others begin meanwhile. A
	// count is one more read for a new request. Defaults to 0, no bound.
	MaxPerScope int
	// NearQuota is the part of etcd's quota from which on no new request begins: it is
	// refused with ErrNearQuota. Above 1, there is no such bound. Defaults to 0.9.
	NearQuota float64
	// Quota is etcd's quota in bytes, for servers that do not tell (before 3.6).
	// Defaults to 2 GiB there.
	Quota int64
}

// LostPolicy is a policy for requests whose attempt was lost: its process died or was cut
// off, it panicked, or it ran too long.
type LostPolicy int

// The policies for lost attempts. If the lost attempt was begun with Refuse, that counts for
// all that come later.
const (
	// TakeOver has the next duplicate run the function again, as a later attempt.
	TakeOver LostPolicy = iota
	// Refuse runs nothing, until somebody has found out what was done and says it with
	// Resolve: the function runs at most once, until the lost attempt is forgotten after
	// RetainUnknown.
	Refuse
)

// Action is what becomes of a request whose function did not succeed.
type Action int

// The actions.
const (
	// DefaultAction is Forget if it comes from OnError; for Options.OnPanic it is Abandon, and
	// for the option OnPanic what Options.OnPanic says.
	DefaultAction Action = iota
	// Forget releases the key for the same payload: the next duplicate runs the function.
	// Another payload is refused with a *MismatchError for Retain, since the failed function
	// may have had effects. While etcd is out of space the key is released for any payload.
	Forget
	// Remember records the failure: duplicates get a *FailedError.
	Remember
	// Abandon leaves the attempt as lost: OnLost says what comes next.
	Abandon
)

const (
	day         = 24 * time.Hour
	maxDuration = 366 * day
	maxResult   = 64 << 20
)

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	setDefault(&out.Retain, day)
	setDefault(&out.RetainUnknown, max(7*day, out.Retain))
	setDefault(&out.MaxExecution, 15*time.Minute)
	setDefault(&out.MaxResult, 8<<20)
	setDefault(&out.CacheBytes, 8<<20)
	setDefault(&out.CacheFor, 10*time.Second)
	setDefault(&out.NearQuota, 0.9)
	setDefault(&out.Quota, 2<<30)
	setDefault(&out.OnPanic, Abandon)
	switch {
	case out.RetainUnknown < out.Retain || out.RetainUnknown > maxDuration:
		return out, invalid("RetainUnknown %v is not between Retain (%v) and %v", out.RetainUnknown, out.Retain, maxDuration)
	case out.MaxResult < 0 || out.MaxResult > maxResult:
		return out, invalid("MaxResult %d is not between 0 and %d", out.MaxResult, maxResult)
	case out.CacheFor < 0:
		return out, invalid("CacheFor %v is negative", out.CacheFor)
	case out.MaxPerScope < 0:
		return out, invalid("MaxPerScope %d is negative", out.MaxPerScope)
	case out.NearQuota < 0:
		return out, invalid("NearQuota %v is negative", out.NearQuota)
	case out.Quota < 0:
		return out, invalid("Quota %d is negative", out.Quota)
	}
	if out.Codec != nil {
		out.OldCodecs = append([]Codec{out.Codec}, out.OldCodecs...)
	}
	for _, c := range out.OldCodecs {
		if c == nil || c.Name() == "" || len(c.Name()) > 64 {
			return out, invalid("a Codec is nil or has no name of 1 to 64 bytes")
		}
	}
	if err := out.ownSecrets(); err != nil {
		return out, err
	}
	_, err := out.settings(nil)
	return out, err
}

// NoSecret, among Options.OldSecrets, lets fingerprints match that were made without a Secret:
// where a Secret is added to a fleet that had none, or is given up.
var NoSecret = []byte("etcdkit: fingerprints without a Secret")

// ownSecrets copies the secrets, and puts nil in place of NoSecret.
func (o *Options) ownSecrets() error {
	if bytes.Equal(o.Secret, NoSecret) {
		return invalid("Secret is NoSecret, which is for OldSecrets: leave it empty")
	}
	o.Secret, o.OldSecrets = bytes.Clone(o.Secret), slices.Clone(o.OldSecrets)
	for i, old := range o.OldSecrets {
		switch {
		case len(old) == 0:
			return invalid("OldSecrets[%d] is empty: NoSecret stands for no Secret", i)
		case bytes.Equal(old, NoSecret):
			o.OldSecrets[i] = nil
		default:
			o.OldSecrets[i] = bytes.Clone(old)
		}
	}
	return nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Option says how one call is to be treated. Of options that set the same thing, the last
// one counts.
type Option func(*settings)

// settings are those of one call.
type settings struct {
	retain       time.Duration
	maxExecution time.Duration
	wait         time.Duration // counts if hasWait
	hasWait      bool
	onLost       LostPolicy
	onError      func(error) Action
	onPanic      Action
	likelyNew    bool
	also         any
}

// Wait bounds how long a duplicate waits for the outcome of the attempt in progress: after d
// Begin returns an *InProgressError. With 0 it does not wait at all. Without this option it
// waits until ctx is done.
func Wait(d time.Duration) Option { return func(s *settings) { s.wait, s.hasWait = d, true } }

// LikelyNew has the key claimed without a look at it first: for callers that know that a
// request has hardly been there before, such as a message that is not redelivered. It saves
// one of three requests to etcd if that is so, and costs a Raft entry if not.
func LikelyNew() Option { return func(s *settings) { s.likelyNew = true } }

// Retain sets for how long the outcome is kept: see Options.Retain.
func Retain(d time.Duration) Option { return func(s *settings) { s.retain = d } }

// MaxExecution bounds how long the attempt may take: see Options.MaxExecution.
func MaxExecution(d time.Duration) Option { return func(s *settings) { s.maxExecution = d } }

// OnLost says what becomes of the request if its attempt is lost, and whether this call
// takes over a lost one.
func OnLost(p LostPolicy) Option { return func(s *settings) { s.onLost = p } }

// OnError says what becomes of the request if the function returns an error: see
// Options.OnError.
func OnError(f func(error) Action) Option { return func(s *settings) { s.onError = f } }

// AlsoCompare has a second payload compared besides that of the call, in the forms that Begin takes;
// nil is none. It counts only between two calls that both have one: a request that was begun
// without, by an earlier release or another program, matches any. So it can be added to what
// tells requests apart while a fleet is running and outcomes are kept, which a change of the
// payload cannot: its duplicates would be refused. ChildKey does not depend on it.
func AlsoCompare(payload any) Option { return func(s *settings) { s.also = payload } }

// OnPanic sets what becomes of the request if the function panics: see Options.OnPanic.
func OnPanic(a Action) Option { return func(s *settings) { s.onPanic = a } }

func (o Options) settings(opts []Option) (settings, error) {
	s := settings{retain: o.Retain, maxExecution: o.MaxExecution, onLost: o.OnLost, onError: o.OnError, onPanic: o.OnPanic}
	for i, f := range opts {
		if f == nil {
			return s, invalid("option %d is nil", i)
		}
		f(&s)
	}
	if s.onError == nil {
		s.onError = func(error) Action { return Forget }
	}
	if s.onPanic == DefaultAction {
		s.onPanic = o.OnPanic
	}
	switch {
	case s.retain < time.Second || s.retain > maxDuration:
		return s, invalid("Retain %v is not between a second and %v", s.retain, maxDuration)
	case s.retain > o.RetainUnknown:
		return s, invalid("Retain %v is above the store's RetainUnknown, %v", s.retain, o.RetainUnknown)
	case s.wait < 0:
		return s, invalid("Wait(%v) is negative", s.wait)
	case s.maxExecution < time.Millisecond:
		return s, invalid("MaxExecution %v is below a millisecond", s.maxExecution)
	case s.onLost != TakeOver && s.onLost != Refuse:
		return s, invalid("OnLost %d is neither TakeOver nor Refuse", s.onLost)
	case s.onPanic < DefaultAction || s.onPanic > Abandon:
		return s, invalid("OnPanic %d is no Action", s.onPanic)
	}
	return s, nil
}
