package idemhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
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
	// maxPart is the most that is written at once, in bytes, so that a slow client has the time for each part.
	maxPart = 32 << 10
)

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
	left    chan written // of the write that was left behind; nil if none was
	stalled func()       // is called then
}

// written is the result of a write.
type written struct {
	n        int
	err      error
	panicked any
}

// newDelivery returns the delivery of the response of an attempt whose context is work. It calls stalled when the client
// does not read.
func newDelivery(a *idempotency.Attempt, work context.Context, ctl *http.ResponseController, stalled func()) *delivery {
	of := middleware.LimitsOf(a)
	return &delivery{
		ctl: ctl, work: work, closing: of.Closing, stalled: stalled,
		part: min(maxBlocked, of.MaxExecution/4), all: of.MaxExecution / 2,
	}
}

// broken reports whether the client does not read, so that the ResponseWriter must not be used.
func (d *delivery) broken() bool { return d != nil && d.left != nil }

// write writes p in parts.
func (d *delivery) write(w io.Writer, p []byte) (n int, err error) {
	if d == nil {
		return w.Write(p)
	}
	for err == nil && n < len(p) {
		var wrote int
		part := p[n:min(n+maxPart, len(p))]
		wrote, err = d.send(func(copied []byte) (int, error) { return w.Write(copied) }, part)
		n += wrote
	}
	return n, err
}

// do calls another method of the ResponseWriter.
func (d *delivery) do(method func() error) error {
	if d == nil {
		return method()
	}
	_, err := d.send(func([]byte) (int, error) { return 0, method() }, nil)
	return err
}

// send calls method with a copy of p, which the caller may change after send has returned. It returns errStalled if that
// blocks for too long, and from then on. Then the connection is ended by its write deadline, which no other write changes.
func (d *delivery) send(method func([]byte) (int, error), p []byte) (int, error) {
	if d.broken() {
		return 0, errStalled
	}
	d.buffer = append(d.buffer[:0], p...)
	begun, ended, copied := time.Now(), make(chan written, 1), d.buffer
	go func() {
		var s written
		defer func() {
			s.panicked = recover()
			ended <- s
		}()
		s.n, s.err = method(copied)
	}()
	s, ok := d.await(ended)
	if !ok {
		d.left = ended
		_ = d.ctl.SetWriteDeadline(time.Unix(1, 0))
		d.stalled()
		return 0, errStalled
	}
	d.all -= time.Since(begun)
	if s.panicked != nil {
		panic(s.panicked)
	}
	return s.n, s.err
}

// await returns the result of a write, and false if it blocks for too long.
func (d *delivery) await(ended <-chan written) (s written, ok bool) {
	limit := time.NewTimer(min(d.part, d.all))
	defer limit.Stop()
	select {
	case s = <-ended:
		return s, true
	case <-limit.C:
		return s, false
	case <-d.work.Done():
	case <-d.closing.Done():
	}
	leaving := time.NewTimer(maxLeaving)
	defer leaving.Stop()
	select {
	case s = <-ended:
		return s, true
	case <-limit.C:
	case <-leaving.C:
	}
	return s, false
}

// wait waits until the server is done with a write that was left behind: until then the ResponseWriter must not be used,
// and a handler of net/http must not return. No attempt is in progress then.
func (d *delivery) wait() {
	if d.broken() {
		<-d.left
		d.left = nil
	}
}
