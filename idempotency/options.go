package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/idempotency/internal/unclaimed"
	"github.com/etcdkit/etcdkit/internal/engine"
)

// Options configure a Store. nil means all defaults. What follows from an operation, and not from the
// store, can be said for one call as well, and counts there in place of the store's: Retain, MaxExecution,
// OnLost and OnPanic.
type Options struct {
	// SingleTenant allows keys without a Scope. Defaults to false.
	SingleTenant bool
	// Retain is how long an outcome is kept at least, from its recording on. It is kept longer
	// if etcd changes its leader meanwhile. Defaults to 24 hours; from one second to 366 days.
	Retain time.Duration
	// RetainUnknown is how long the record of a lost attempt is kept at least, from the end of the attempt or of its process,
	// whichever comes first; not shorter than Retain. Defaults to 7 days, or to Retain if that is longer.
	RetainUnknown time.Duration
	// MaxExecution bounds an attempt: after it, the attempt's context ends with ErrTooLong. If the
	// function has not returned the session's Margin later, the attempt counts as lost. Defaults
	// to 15 minutes.
	MaxExecution time.Duration
	// OnLost decides what happens to a request whose attempt was lost. Defaults to TakeOver.
	OnLost LostPolicy
	// OnPanic decides what happens to a request whose function panicked or called
	// runtime.Goexit. With Remember the text of the panic is stored in plain text. With Refuse,
	// Forget counts as Abandon. Defaults to Abandon.
	OnPanic Action
	// MaxResult is the size in bytes, after Codec, up to which a result is kept. The outcome of a
	// larger result is recorded without it: the function does not run again, and duplicates get an
	// *OmittedError. Results above 128 KiB are sent in messages of up to 1 MiB; if etcd
	// (--max-request-bytes) or the client (MaxCallSendMsgSize) accepts less, they are not kept
	// either. Defaults to 8 MiB; at most 64 MiB.
	MaxResult int
	// Codec transforms results, details of failures and recovery points before they are stored, to
	// compress or to encrypt them: package aesgcm has one. It does not transform texts of failures,
	// scopes and operations.
	// Defaults to none.
	Codec Codec
	// OldCodecs are further codecs by which stored results are read. Two of one name are ErrInvalid. Defaults to none.
	OldCodecs []Codec
	// Secret is the key with which fingerprints of payloads are hashed, so that a reader of etcd
	// cannot find a payload by trying. It must be the same in all processes. Defaults to none.
	Secret []byte
	// OldSecrets are further secrets whose fingerprints match; new requests are recorded with
	// Secret alone. To change a Secret, make three rollouts, each in all processes:
	//
	//  1. Add the new secret to OldSecrets.
	//  2. Make it the Secret, and put the previous one into OldSecrets.
	//  3. Remove the previous one, when three times RetainUnknown has passed, or four times
	//     SessionOptions.TTL if that is longer, since the last process with the previous Secret ended
	//     and since etcd's latest change of its leader, which begins the time of all leases again.
	//     What that process has left unknown is stored for up to one and a half times RetainUnknown,
	//     or twice the TTL; an operator may resolve it at the end of that, and the outcome is kept for
	//     two thirds of that time from then.
	//
	// Such a process may work for MaxExecution after its last new request. If a secret that is
	// still needed is missing, duplicates are refused with ErrMismatch, and no function runs twice.
	// NoSecret means no Secret; an empty entry is ErrInvalid. Each entry costs one more hash of the
	// payload per call. Defaults to none.
	OldSecrets [][]byte
	// CacheBytes bounds the memory in which this process keeps outcomes, for duplicates that come
	// soon after; below zero it keeps none. Defaults to 8 MiB.
	CacheBytes int
	// CacheFor is how long this process keeps an outcome in memory after it has recorded or read it,
	// and at most the Retain of the call; after a read, also at most that of the store. As long as
	// that it may replay an outcome that was deleted, or that has expired since it was read. An
	// outcome that this process has recorded is not replayed after it has expired. It leaves the
	// memory up to a quarter of CacheFor later. Defaults to 10 seconds.
	CacheFor time.Duration
	// MaxPerScope bounds how many records a scope has, as Store.CountScope counts them. Above it a new request of the scope is refused with a
	// *ScopeFullError, so that one tenant cannot fill the store; requests that have a record
	// continue, which includes replays and takeovers. It bounds the number of records, not their
	// size. It is soft: a process uses a count for 0.1 ms per counted record or for 20 times as
	// long as it took (as long, if the scope is full), whichever is longer, at least 10 ms and at
	// most 10 s; meanwhile it adds the requests that it begins, and does not see those of other
	// processes, nor records that are removed. A count is one more read, by a majority, for a new
	// request; that is why there is no bound by default, and the records of a tenant's day differ too
	// much for one figure. Without a bound one scope can fill etcd up to NearQuota, and no scope begins
	// a request then: the second scope of a process is logged as a warning. Below zero there is neither
	// a bound nor the warning. Defaults to 0, no bound.
	MaxPerScope int
	// NearQuota is the part of etcd's quota from which on no new request begins: it is
	// refused with ErrNearQuota. Above 1 there is no such bound; NaN is ErrInvalid. Defaults to 0.9.
	NearQuota float64
	// Quota is etcd's quota in bytes, for servers that do not report it (before etcd 3.6).
	// Defaults to 2 GiB.
	Quota int64
}

// LostPolicy decides what happens to a request whose attempt was lost: its process died or was cut
// off from etcd, its function panicked, or MaxExecution had passed. It decides what an error of the
// function means, too.
type LostPolicy int

// The policies for lost attempts. The record of an attempt keeps its Refuse: a later call with
// TakeOver does not take the request over.
const (
	// TakeOver lets the next duplicate run the function, as a further attempt. An error of the
	// function releases the request, too.
	TakeOver LostPolicy = iota
	// Refuse refuses duplicates with an *UnknownError, until an operator has found out what the
	// attempt did and calls Resolve. Each end that is neither a success nor a recorded failure counts
	// as lost, unless the function itself says that nothing was done (NothingDone). So the function
	// has effects at most once, until the record has expired: after Retain if an outcome was recorded,
	// otherwise after RetainUnknown. A client within the function may repeat its requests by itself:
	// net/http's does so with each that has an Idempotency-Key, unless it is sent by
	// idemhttp.Transport.
	Refuse
)

// Action is what happens to a request whose function did not succeed.
type Action int

// The actions.
const (
	// DefaultAction, if OnError returns it, is Forget with TakeOver and Abandon with Refuse. In
	// Options.OnPanic it means Abandon, and in the option OnPanic it means Options.OnPanic.
	DefaultAction Action = iota
	// Forget releases the key for the same payload: the next duplicate runs the function.
	// Another payload is refused with a *MismatchError for Retain, since the failed function
	// may have had effects. While etcd is out of space the key is released for any payload.
	Forget
	// Remember records the failure: duplicates get a *FailedError.
	Remember
	// Abandon leaves the attempt as lost: OnLost decides what happens next.
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
	out.Retain = cmp.Or(out.Retain, day)
	out.RetainUnknown = cmp.Or(out.RetainUnknown, max(7*day, out.Retain))
	out.MaxExecution = cmp.Or(out.MaxExecution, 15*time.Minute)
	out.MaxResult = cmp.Or(out.MaxResult, 8<<20)
	out.CacheBytes = cmp.Or(out.CacheBytes, 8<<20)
	out.CacheFor = cmp.Or(out.CacheFor, 10*time.Second)
	out.NearQuota = cmp.Or(out.NearQuota, 0.9)
	out.Quota = cmp.Or(out.Quota, 2<<30)
	out.OnPanic = cmp.Or(out.OnPanic, Abandon)
	switch {
	case out.RetainUnknown < out.Retain || out.RetainUnknown > maxDuration:
		return out, invalid("Options.RetainUnknown %v is not between Retain (%v) and %v", out.RetainUnknown, out.Retain, maxDuration)
	case out.MaxResult < 0 || out.MaxResult > maxResult:
		return out, invalid("Options.MaxResult %d is not between 0 and %d", out.MaxResult, maxResult)
	case out.CacheFor < 0:
		return out, invalid("Options.CacheFor %v is negative", out.CacheFor)
	case !(out.NearQuota >= 0): // or NaN
		return out, invalid("Options.NearQuota %v is not a number from 0 on", out.NearQuota)
	case out.Quota < 0:
		return out, invalid("Options.Quota %d is negative", out.Quota)
	}
	if out.Codec != nil {
		out.OldCodecs = append([]Codec{out.Codec}, out.OldCodecs...)
	}
	if err := checkCodecs(out.OldCodecs); err != nil {
		return out, err
	}
	if err := out.ownSecrets(); err != nil {
		return out, err
	}
	_, err := out.settings(nil)
	return out, err
}

// NoSecret, as an entry of Options.OldSecrets, matches fingerprints that were made without a
// Secret: use it while a fleet gets its first Secret, or gives its Secret up.
var NoSecret = []byte("etcdkit: fingerprints without a Secret")

// ownSecrets copies the secrets, and puts nil in place of NoSecret.
func (o *Options) ownSecrets() error {
	if bytes.Equal(o.Secret, NoSecret) {
		return invalid("Options.Secret is NoSecret, which is for Options.OldSecrets; leave Secret empty")
	}
	o.Secret, o.OldSecrets = bytes.Clone(o.Secret), slices.Clone(o.OldSecrets)
	for i, old := range o.OldSecrets {
		switch {
		case len(old) == 0:
			return invalid("Options.OldSecrets[%d] is empty (NoSecret means no secret)", i)
		case bytes.Equal(old, NoSecret):
			o.OldSecrets[i] = nil
		default:
			o.OldSecrets[i] = bytes.Clone(old)
		}
	}
	return nil
}

// Option changes one call. Of options that set the same thing, the last one counts.
type Option func(*settings)

// settings are the options of one call with the store's as defaults. They do not change once
// they are made.
type settings struct {
	Options
	wait      time.Duration // counts if hasWait
	hasWait   bool
	likelyNew bool
	also      any
	onError   func(error) Action
	note, via string
	returns   string
	silence   time.Duration // how long etcd's first answer is waited for; 0 is as long as ctx: see package silence
	unclaimed *unclaimed.Run
}

// BoundSilence is for package silence.
func (s *settings) BoundSilence(d time.Duration) { s.silence = d }

// Wait bounds how long a duplicate waits for the outcome of the attempt in progress: after d
// Begin returns an *InProgressError. With 0 it does not wait at all. Without this option it
// waits until ctx is done. The middlewares of idemhttp and idemgrpc have a Wait of their own, which
// defaults to 0.
func Wait(d time.Duration) Option { return func(s *settings) { s.wait, s.hasWait = d, true } }

// LikelyNew claims the key without reading it first. It is for requests that are almost never
// duplicates, such as a message that is not redelivered. It saves one of three requests to etcd
// for a new request, and costs a Raft entry for a duplicate.
func LikelyNew() Option { return func(s *settings) { s.likelyNew = true } }

// Retain sets how long the outcome is kept, at most Options.RetainUnknown (7 days by default): see Options.Retain.
func Retain(d time.Duration) Option { return func(s *settings) { s.Retain = d } }

// MaxExecution bounds the attempt: see Options.MaxExecution.
func MaxExecution(d time.Duration) Option { return func(s *settings) { s.MaxExecution = d } }

// OnLost decides what happens to the request if its attempt is lost, and whether this call takes
// over an attempt that was lost: see Options.OnLost.
func OnLost(p LostPolicy) Option { return func(s *settings) { s.OnLost = p } }

// OnError decides what happens to the request if the function returns an error that is neither
// NothingDone nor Permanent. It does not apply if the attempt's context had ended: then the attempt
// counts as lost. With Remember the text of the error is stored in plain text, whatever the Codec. With
// Refuse, Forget counts as Abandon. Without OnError, and for a nil one, it is DefaultAction for all errors.
// It is an option of a call alone, since it is about the errors of one function.
func OnError(f func(error) Action) Option { return func(s *settings) { s.onError = f } }

// AlsoCompare adds a second payload, in any form that Begin accepts; nil is none. Two calls with a
// second payload are the same request only if both payloads are equal. A call without one, such as
// that of an earlier release, matches any second payload. So a running fleet can begin to compare
// more, while a change of the payload itself would refuse duplicates of recorded requests. ChildKey
// does not depend on the second payload.
func AlsoCompare(payload any) Option { return func(s *settings) { s.also = payload } }

// OnPanic decides what happens to the request if the function panics: see Options.OnPanic.
func OnPanic(a Action) Option { return func(s *settings) { s.OnPanic = a } }

// waits reports whether a duplicate waits at all.
func (s *settings) waits() bool { return !s.hasWait || s.wait > 0 }

// waitBound returns a context that ends after the option Wait, if a duplicate waits.
func (s *settings) waitBound() (context.Context, context.CancelFunc) {
	if s.wait == 0 {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.Background(), s.wait)
}

func (o Options) settings(opts []Option) (*settings, error) {
	s := &settings{Options: o}
	if err := engine.Apply(opts, s); err != nil {
		return s, err
	}
	if s.onError == nil {
		s.onError = func(error) Action { return DefaultAction }
	}
	s.OnPanic = cmp.Or(s.OnPanic, o.OnPanic)
	switch {
	case s.Retain < time.Second || s.Retain > maxDuration:
		return s, invalid("Retain %v is not between a second and %v", s.Retain, maxDuration)
	case s.Retain > o.RetainUnknown:
		return s, invalid("Retain %v is above Options.RetainUnknown, %v", s.Retain, o.RetainUnknown)
	case s.wait < 0:
		return s, invalid("Wait(%v) is negative", s.wait)
	case s.MaxExecution < time.Millisecond:
		return s, invalid("MaxExecution %v is below a millisecond", s.MaxExecution)
	case s.OnLost != TakeOver && s.OnLost != Refuse:
		return s, invalid("OnLost %d is neither TakeOver nor Refuse", s.OnLost)
	case len(s.via) > mostVia:
		return s, invalid("Via(%.20q…) has %d bytes, more than %d", s.via, len(s.via), mostVia)
	case s.OnPanic < DefaultAction || s.OnPanic > Abandon:
		return s, invalid("OnPanic %d is not an Action", s.OnPanic)
	}
	return s, nil
}
