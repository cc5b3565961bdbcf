// Package outage notices once, for all requests of a middleware, that etcd does not answer. The first
// requests wait for etcd as long as their options say. When one of them has waited in vain, the others are
// answered at once, while one a second asks again. The first answer ends that.
package outage

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ErrUnavailable is concurrency.ErrUnavailable.
var ErrUnavailable = errors.New("etcd is unavailable")

// Every is how often a request asks, in an outage, whether etcd answers again, and how long such a request
// waits for an answer at most.
const Every = time.Second

// Idle is how long no request has waited in vain when something else asks in their place.
const Idle = 5 * Every

// longest is more than the longest time for which etcd may have to be silent.
const longest = 366 * 24 * time.Hour

// Detector is what is known of etcd's availability, as requests have found it that call a T each. It is safe
// for concurrent use.
type Detector[T any] struct {
	start   time.Time // of the time that is measured here; it lies before any answer
	changed func(of T, err error, lasted time.Duration)
	on      atomic.Bool  // err is not nil
	last    atomic.Int64 // when etcd last answered a request, as the time since start

	mu         sync.Mutex
	err        error     // of the request that found the outage, without the name of that request
	asked      time.Time // when a request was last to ask
	vain       time.Time // when a request has last waited in vain
	began      time.Time
	of         T           // what the request has called that found it
	changes    []change[T] // of which changed was not called yet
	announcing bool        // changed is being called
}

// change is the begin or the end of an outage.
type change[T any] struct {
	of     T
	err    error
	lasted time.Duration
}

// New returns a Detector. If changed is not nil, it is called when an outage begins, with the error, and when
// it ends, with nil and how long it lasted, in this order and never twice at the same time; of is what the request had
// called that found it.
func New[T any](changed func(of T, err error, lasted time.Duration)) *Detector[T] {
	return &Detector[T]{start: time.Now().Add(-longest), changed: changed}
}

// On reports whether there is an outage. It takes no lock.
func (d *Detector[T]) On() bool { return d.on.Load() }

// Idle reports whether there is an outage, and whether no request has waited in vain for long: none came, or those that
// came were refused for a reason that says nothing of etcd.
func (d *Detector[T]) Idle(now time.Time) (on, idle bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err != nil, now.Sub(d.vain) >= Idle
}

// Turn returns what a request does that would ask etcd now, and after Refuse the error of the outage.
// answered is when the caller's session was last answered; the zero time if that is not known.
func (d *Detector[T]) Turn(now, answered time.Time) (Turn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	turn := known{out: d.err != nil, now: now, asked: d.asked, answered: answered}.turn()
	if turn == Refuse {
		return turn, d.err
	}
	d.asked = now
	return turn, nil
}

// Unanswered records that a request has waited in vain, and reports whether that is an outage: etcd has
// answered nothing since both of these times. of is what the request has called.
func (d *Detector[T]) Unanswered(err error, of T, since, from time.Time) bool {
	if !silent(since, d.LastAnswer(), from) {
		return false
	}
	d.set(err, of)
	return true
}

// LastAnswer returns when etcd last answered a request, as Answered was called; a time long ago if it never was.
func (d *Detector[T]) LastAnswer() time.Time { return d.start.Add(time.Duration(d.last.Load())) }

// Answered ends an outage: etcd has answered. A request that has waited in vain until then does not begin
// it anew.
func (d *Detector[T]) Answered() {
	d.last.Store(int64(time.Since(d.start)))
	if d.on.Load() {
		var none T
		d.set(nil, none)
	}
}

// AnsweredAt is Answered for an answer at a time, which may lie before the outage: then it does not end it.
func (d *Detector[T]) AnsweredAt(at time.Time) {
	since := int64(at.Sub(d.start))
	for last := d.last.Load(); last < since && !d.last.CompareAndSwap(last, since); last = d.last.Load() {
	}
	if !d.on.Load() {
		return
	}
	d.mu.Lock()
	over := at.After(d.began)
	d.mu.Unlock()
	if over {
		d.Answered()
	}
}

func (d *Detector[T]) set(err error, of T) {
	d.mu.Lock()
	now := time.Now()
	began, ended := err != nil && d.err == nil, err == nil && d.err != nil
	if began {
		d.asked, d.began, d.of = now, now, of
	}
	if err != nil && err != d.err { // otherwise it is that of a request which Turn has refused
		d.vain = now
	}
	d.err = err
	d.on.Store(err != nil)
	if (began || ended) && d.changed != nil {
		d.changes = append(d.changes, change[T]{d.of, err, now.Sub(d.began)})
	}
	d.mu.Unlock()
	d.announce()
}

// announce calls changed for each change, in their order, unless another call does so already: the end of an outage may be
// found while changed is called for its begin.
func (d *Detector[T]) announce() {
	d.mu.Lock()
	if d.announcing || len(d.changes) == 0 {
		d.mu.Unlock()
		return
	}
	next := d.changes[0]
	d.changes, d.announcing = d.changes[1:], true
	d.mu.Unlock()
	defer d.announce() // also if changed panics
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.announcing = false
	}()
	d.changed(next.of, next.err, next.lasted)
}
