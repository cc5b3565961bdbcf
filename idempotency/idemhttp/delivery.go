package idemhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// A client that does not read its response makes Write and Flush of a server block without end, unless the server has a
// WriteTimeout. Its attempt would last until it counts as lost, and the request would execute again. So as long as an attempt
// is in progress, its response is written by another goroutine, which is left behind if it blocks for too long.

const (
	// maxBlocked bounds how long the write of one part may block.
	maxBlocked = 30 * time.Second
	// maxLeaving bounds it once the attempt's context has ended, or its session is being closed.
	maxLeaving = time.Second
	// brief is how long a write may take without a clock that measures it: most take microseconds.
	brief = 5 * time.Millisecond
	// maxPart is the most that is written at once, in bytes, so that a slow client has the time for each part.
	maxPart = 32 << 10
)

// errExited is the failure of a call of the ResponseWriter that has ended its goroutine.
var errExited = errors.New("idemhttp: send the response: the ResponseWriter has called runtime.Goexit")

// errStalled is the failure of a response whose client does not read it.
var errStalled = errors.New("idemhttp: send the response: the client has not read it for too long, and the attempt does not wait for it")

// delivery sends a response while its attempt is in progress. A nil delivery sends without a bound.
type delivery struct {
	ctl     *http.ResponseController
	work    context.Context // the attempt's
	closing context.Context
	part    time.Duration // bounds the write of one part
	all     time.Duration // bounds the writes that are still to come
	buffer  []byte
	ended   chan written // of each write, one after the other
	timer   *time.Timer  // of brief
	stalled func()       // is called when a write is left behind

	mu      sync.Mutex   // goroutines of the handler may set deadlines
	left    chan written // of the write that was left behind; nil if none was
	settled bool         // the attempt is: from then on there is no bound
}

// written is the result of a write.
type written struct {
	n        int
	err      error
	panicked any
}

// newDelivery returns the delivery of the response of an attempt whose context is work. It calls stalled when the client
// does not read. In front of the recorder of another Middleware there is none: that one's delivery has the bound, and if both
// had one, the outer handler would break off, and its attempt would be lost.
func newDelivery(a *idempotency.Attempt, work context.Context, rec *recorder, stalled func()) *delivery {
	if found[interface{ own() http.ResponseWriter }](rec.w) {
		return nil
	}
	of := middleware.LimitsOf(a)
	return &delivery{
		ctl: rec.ctl, work: work, closing: of.Closing, stalled: stalled,
		part: min(maxBlocked, of.MaxExecution/4), all: of.MaxExecution / 2,
	}
}

// broken reports whether the client does not read, so that the ResponseWriter must not be used.
func (d *delivery) broken() bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left != nil
}

// bounds reports whether the attempt is in progress.
func (d *delivery) bounds() bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.settled
}

// settle says that the attempt is settled.
func (d *delivery) settle() {
	if d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.settled = true
	}
}

// leave leaves a write behind. It ends the connection by its write deadline, which no other write changes.
func (d *delivery) leave(ended chan written) {
	d.mu.Lock()
	d.left = ended
	_ = d.ctl.SetWriteDeadline(time.Unix(1, 0))
	d.mu.Unlock()
	d.stalled()
}

// setDeadline sets a write deadline of the handler's. One that has ended the connection stays.
func (d *delivery) setDeadline(ctl *http.ResponseController, t time.Time) error {
	if d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.left != nil {
			return nil
		}
	}
	return ctl.SetWriteDeadline(t)
}

// write writes p in parts. A part is written if Write returns no error, whatever it says of its length.
func (d *delivery) write(w io.Writer, p []byte) (n int, err error) {
	if !d.bounds() {
		return w.Write(p)
	}
	for err == nil && n < len(p) {
		var wrote int
		part := p[n:min(n+maxPart, len(p))]
		wrote, err = d.send(w, part, nil)
		if err == nil {
			wrote = len(part)
		}
		n += wrote
	}
	return n, err
}

// do calls another method of the ResponseWriter.
func (d *delivery) do(method func() error) error {
	if !d.bounds() {
		return method()
	}
	_, err := d.send(nil, nil, method)
	return err
}

// send calls method, or writes a copy of p, which the caller may change after send has returned. It returns errStalled if that
// blocks for too long, and from then on.
func (d *delivery) send(w io.Writer, p []byte, method func() error) (int, error) {
	if d.broken() {
		return 0, errStalled
	}
	if d.ended == nil {
		d.ended = make(chan written, 1)
	}
	d.buffer = append(d.buffer[:0], p...)
	go perform(d.ended, w, d.buffer, method)
	s, ok := d.await(d.ended)
	if !ok {
		d.leave(d.ended)
		return 0, errStalled
	}
	if s.panicked != nil {
		panic(s.panicked)
	}
	return s.n, s.err
}

// perform calls method, or writes p if it is nil, and passes the result on.
func perform(ended chan<- written, w io.Writer, p []byte, method func() error) {
	s := written{err: errExited}
	defer func() {
		s.panicked = recover()
		ended <- s
	}()
	if method != nil {
		s.err = method()
		return
	}
	s.n, s.err = w.Write(p)
}

// await returns the result of a write, and false if it blocks for too long. A pause of the process does not count: the client
// may have read meanwhile.
func (d *delivery) await(ended <-chan written) (s written, ok bool) {
	bound := min(d.part, d.all)
	took, s, ok := d.soon(ended, min(brief, bound))
	d.all -= took
	if ok {
		return s, true
	}
	bound -= took
	limit, pass := context.WithCancel(context.Background())
	defer pass()
	clock := middleware.StartClock(bound, func(p middleware.Part) bool {
		if p.Ran >= bound {
			pass()
		}
		return p.Ran < bound
	})
	defer func() { d.all -= measured(clock, limit, bound) }()
	return d.take(ended, limit)
}

// soon returns how long a write has taken, t at most, and its result if it has ended by then. It does not wait for it if the
// attempt has to end.
func (d *delivery) soon(ended <-chan written, t time.Duration) (took time.Duration, s written, ok bool) {
	begun := time.Now()
	if d.timer == nil {
		d.timer = time.NewTimer(t)
	} else {
		d.timer.Reset(t)
	}
	defer d.timer.Stop()
	select {
	case s = <-ended:
		ok = true
	case <-d.timer.C:
	case <-d.work.Done():
	case <-d.closing.Done():
	}
	return min(t, time.Since(begun)), s, ok
}

// take returns the result of a write, and false if limit ends first, or it blocks for maxLeaving once the attempt has to end.
func (d *delivery) take(ended <-chan written, limit context.Context) (s written, ok bool) {
	select {
	case s = <-ended:
		return s, true
	case <-limit.Done():
	case <-d.work.Done():
	case <-d.closing.Done():
	}
	leaving, stop := middleware.WithinClock(limit, maxLeaving)
	defer stop()
	select {
	case s = <-ended:
		return s, true
	case <-leaving.Done():
	}
	select {
	case s = <-ended: // at the same time
		return s, true
	default:
		return s, false
	}
}

// measured stops a clock, and returns what it has measured: bound once limit has ended.
func measured(c *middleware.Clock, limit context.Context, bound time.Duration) time.Duration {
	p, counts := c.Stop()
	switch {
	case limit.Err() != nil:
		return bound
	case !counts:
		return p.Ran - p.To.Sub(p.From)
	}
	return p.Ran
}

// wait waits until the server is done with a write that was left behind: until then the ResponseWriter must not be used,
// and a handler of net/http must not return. No attempt is in progress then.
func (d *delivery) wait() {
	if d.broken() {
		d.left <- <-d.left // for the next wait
	}
}
