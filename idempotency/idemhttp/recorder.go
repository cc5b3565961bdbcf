package idemhttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// recorder is a handler's ResponseWriter. It buffers the response until it is recorded. If the
// handler flushes it, or its body is larger than max, the rest is streamed to the client; up to
// max it is buffered for the record, too. What would show the client that it has all is kept back until then: see
// hold.go.
//
// A write succeeds although the connection has failed: otherwise the recorded body, or the work of the handler, would end
// where the connection did. If the body is not buffered, that ends with the attempt's context. A client that does not read
// is a connection that has failed: see delivery.
type recorder struct {
	w      http.ResponseWriter
	ctl    *http.ResponseController
	r      *http.Request
	ctx    context.Context // the handler's
	before http.Header     // what was set when the handler was called
	header http.Header     // what the handler sees
	max    int

	status   int         // 0 until it is written
	failed   int         // a status of 5xx that came later, as of a recoverer; 0 if none did
	after    http.Header // the headers as they were when it came
	text     []byte      // what was written after it
	head     http.Header // the headers as they were then
	length   int64       // the Content-Length; -1 if there is none
	written  int64       // bytes of the body that the handler has passed to Write
	taken    int64       // bytes of those that were buffered or sent
	body     []byte
	over     bool   // the body is larger than max, and is not buffered
	begun    []byte // the beginning of one that is not, of a status from 400 on
	broken   bool   // a Write has failed then
	live     bool   // the response is streamed
	sent     int64  // bytes of the body, of a streamed response
	failure  error  // of the connection: nothing more is sent
	held     []byte // its end, which is kept back
	settled  bool   // it may be sent
	hijacked bool
	silent   bool        // the handler has returned and written nothing
	gone     bool        // the client had left when the response began
	stopped  bool        // a context of the handler has ended, and nothing shows a whole response
	unread   error       // its last frame is there, and cannot be read
	ended    bool        // the handler has returned
	late     func(error) // is called for a write after that
	visit    *visit      // the call of the handler
	out      *delivery   // nil before the handler, and behind another Middleware

	protocol protocol // of the response, from its headers on
	frames   *frames  // of its body; nil if it has none
}

func record(w http.ResponseWriter, r *http.Request, max int, late func(error)) *recorder {
	h := w.Header()
	return &recorder{w: w, ctl: http.NewResponseController(w), r: r, ctx: context.Background(), before: h.Clone(), header: h.Clone(), max: max, late: late}
}

// errLate is the error of a write that is neither recorded nor sent. It occurs in frameworks
// whose handlers return errors, if the error is written in front of the Middleware.
var errLate = errors.New("the response was written to after its handler has returned")

// Header returns the headers of the response.
func (rec *recorder) Header() http.Header { return rec.header }

// WriteHeader sets the status. A status 1xx goes to the client at once, before the response.
func (rec *recorder) WriteHeader(status int) {
	switch {
	case rec.ended:
		rec.late(errLate)
		return
	case status < 100 || status > 999:
		panic(fmt.Sprintf("idemhttp: invalid WriteHeader code %d", status)) // as net/http does
	case rec.hijacked || rec.status != 0:
		if status >= 500 && rec.status < 500 && (rec.failed == 0 || rec.late504()) {
			rec.failed, rec.after = status, rec.header.Clone()
		}
		return
	case !final(status):
		h := rec.header.Clone()
		_ = rec.out.do(func() error {
			replace(rec.w.Header(), h)
			rec.w.WriteHeader(status)
			replace(rec.w.Header(), rec.before)
			return nil
		})
		return
	}
	rec.status, rec.head, rec.length = status, rec.header.Clone(), -1
	rec.gone = rec.visit != nil && rec.visit.client.Ended()
	rec.protocol = protocolOf(rec.r, rec.head)
	rec.frames = framesOf(rec.protocol)
	if n, err := strconv.ParseInt(rec.head.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		rec.length = n
		if n > int64(rec.max) && rec.r.Method != http.MethodHead {
			rec.over = true // it will not fit, so it is streamed from the start
		}
	}
}

// Write writes a part of the body. It returns http.ErrBodyNotAllowed, http.ErrContentLength for
// a part beyond the Content-Length, http.ErrHijacked or, if the body is not buffered and the attempt's
// context has ended, the error of the connection. What is written after a 5xx on top of another status is no part of the
// recorded body: if the 5xx counts, the client gets it with that, up to max.
func (rec *recorder) Write(p []byte) (int, error) {
	if rec.ended {
		rec.late(errLate)
		return 0, errLate
	}
	if rec.hijacked {
		return 0, http.ErrHijacked
	}
	if rec.failed != 0 {
		rec.text = append(rec.text, p[:min(len(p), rec.max-len(rec.text))]...)
		return len(p), nil
	}
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if bodyless(rec.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if rec.written += int64(len(p)); rec.length >= 0 && rec.written > rec.length {
		return 0, http.ErrContentLength // as in net/http, nothing of that part is sent
	}
	if rec.frames != nil {
		rec.frames.write(p)
	}
	if rec.over || len(rec.body)+len(p) > rec.max {
		rec.over = true
		rec.begin(p)
		if rec.whole() { // the answer to a HEAD
			rec.sniff(p)
			rec.body, rec.taken = nil, rec.taken+int64(len(p))
			return len(p), nil
		}
		rec.open(p)
		rec.body = nil
		n, err := rec.pass(p)
		if err != nil && rec.ctx.Err() == nil {
			n, err = len(p), nil
		}
		rec.taken, rec.broken = rec.taken+int64(n), rec.broken || err != nil
		return n, err
	}
	rec.grow(len(p))
	rec.body, rec.taken = append(rec.body, p...), rec.taken+int64(len(p))
	if rec.live {
		_, _ = rec.pass(p)
	}
	return len(p), nil
}

// grow makes room for n more bytes of the body: for its Content-Length, or twice the present
// room. append, which grows a large slice by a quarter, would allocate five times a body.
func (rec *recorder) grow(n int) {
	need := len(rec.body) + n
	if need <= cap(rec.body) {
		return
	}
	room := max(need, min(max(2*cap(rec.body), int(rec.length)), rec.max))
	rec.body = append(make([]byte, 0, room), rec.body...)
}

// WriteString is Write.
func (rec *recorder) WriteString(s string) (int, error) { return rec.Write([]byte(s)) }

// open begins to stream: it sends the headers and the buffered part of the body. More is the
// part that follows at once.
func (rec *recorder) open(more []byte) {
	if rec.live {
		return
	}
	rec.live = true
	rec.sniff(more)
	_ = rec.out.do(func() error {
		replace(rec.w.Header(), rec.head)
		rec.w.WriteHeader(rec.status)
		return nil
	})
	_, _ = rec.pass(rec.body)
}

// sniff sets the Content-Type where net/http would, before the headers are sent, so that a replay
// has the type of the same bytes. Where net/http would not, it keeps a replay from having one.
func (rec *recorder) sniff(more []byte) {
	_, typed := rec.head["Content-Type"]
	if typed {
		return
	}
	seen := rec.body
	if len(seen) < 512 {
		seen = append(slices.Clip(seen), more[:min(len(more), 512)]...)
	}
	switch {
	case rec.head.Get("Content-Encoding") != "": // net/http sets no type, nor for a replay
	case len(seen) == 0, rec.head.Get("Transfer-Encoding") != "":
		rec.head["Content-Type"] = nil
	default:
		rec.head.Set("Content-Type", http.DetectContentType(seen))
	}
}

// flush streams the response from now on, unless its client could see its end then. It returns an error if the server cannot, but
// none if the connection has failed, as Write.
func (rec *recorder) flush() error {
	switch {
	case rec.ended:
		return errLate
	case rec.hijacked:
		return http.ErrHijacked
	case rec.failed != 0:
		return nil
	}
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	if !rec.live && rec.whole() {
		return nil
	}
	rec.open(nil)
	err := rec.out.do(rec.ctl.Flush)
	if !errors.Is(err, http.ErrNotSupported) && rec.ctx.Err() == nil {
		return nil
	}
	return err
}

// hijack sends what was written, as net/http does, such as status 101, and hands the connection to
// the handler. It returns http.ErrHijacked, http.ErrNotSupported or the error of the server.
func (rec *recorder) hijack() (net.Conn, *bufio.ReadWriter, error) {
	switch {
	case rec.ended:
		return nil, nil, errLate
	case rec.hijacked:
		return nil, nil, http.ErrHijacked
	case rec.status != 0:
		rec.open(nil)
		if len(rec.held) > 0 && rec.passHeld() == nil {
			_ = rec.out.do(rec.ctl.Flush) // net/http's Hijack drops the rest of its buffer
		}
	}
	if rec.out.broken() {
		return nil, nil, errStalled
	}
	conn, rw, err := rec.ctl.Hijack()
	rec.hijacked = err == nil
	return conn, rw, err
}

// CloseNotify returns a channel that receives a value when the client has hung up. It is for code
// that still needs http.CloseNotifier, which Client replaces.
func (rec *recorder) CloseNotify() <-chan bool {
	if rec.visit != nil {
		rec.visit.ask()
	}
	gone := make(chan bool, 1)
	context.AfterFunc(rec.r.Context(), func() { gone <- true })
	return gone
}

// The other methods for http.ResponseController. (With Unwrap the handler could bypass the
// recorder.)

func (rec *recorder) SetReadDeadline(t time.Time) error { return rec.ctl.SetReadDeadline(t) }
func (rec *recorder) EnableFullDuplex() error           { return rec.ctl.EnableFullDuplex() }
func (rec *recorder) SetWriteDeadline(t time.Time) error {
	return rec.out.setDeadline(rec.ctl, t)
}

// end returns the response to record. It is called when the handler has returned.
func (rec *recorder) end(c *config) *Response {
	defer func() { rec.ended = true }()
	if rec.hijacked {
		return &Response{Hijacked: true}
	}
	if rec.status == 0 {
		rec.silent = true
		rec.WriteHeader(http.StatusOK)
	}
	if len(rec.body) > 0 {
		rec.sniff(nil)
	}
	trailer, omitted := trailers(rec.header, rec.head), rec.over || rec.cut() || rec.fell() && !rec.entire()
	header := c.stored(rec.head, rec.before, omitted)
	if rec.length >= 0 && empty(rec.r, rec.status) {
		header.Set("Content-Length", strconv.FormatInt(rec.length, 10))
	}
	return &Response{
		Status: rec.status, Header: header, Trailer: c.stored(trailer, nil, omitted),
		Body: rec.body, Omitted: omitted,
	}
}

// send sends the rest of the response.
func (rec *recorder) send() {
	if rec.hijacked {
		return
	}
	trailer := sendable(rec.r, trailers(rec.header, rec.head))
	rec.settled = true
	if !rec.live {
		measure(rec.head, rec.r, rec.status, rec.body, trailer)
		rec.open(nil)
		unsize(rec.w, rec.r, rec.status, trailer)
	}
	if rec.passHeld() != nil {
		rec.breakOff()
	}
	maps.Copy(rec.w.Header(), trailer)
}

// measure sets the Content-Length of a complete body.
func measure(h http.Header, r *http.Request, status int, body []byte, trailer http.Header) {
	for _, name := range []string{"Content-Length", "Transfer-Encoding", "Trailer"} {
		if len(h[name]) > 0 {
			return
		}
	}
	if len(trailer) == 0 && !empty(r, status) {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
}

// unsize keeps net/http from setting the Content-Length of a short body if there are trailers
// that were not announced: in HTTP/1.1, no trailers follow a body with a length.
func unsize(w http.ResponseWriter, r *http.Request, status int, trailer http.Header) {
	for name := range trailer {
		if strings.HasPrefix(name, http.TrailerPrefix) && !empty(r, status) {
			_ = http.NewResponseController(w).Flush()
			return
		}
	}
}

// replace makes h a copy of the other header, without trailers that have net/http's prefix.
func replace(h, with http.Header) {
	for name := range h {
		if _, ok := with[name]; !ok {
			delete(h, name)
		}
	}
	for name, values := range with {
		if !strings.HasPrefix(name, http.TrailerPrefix) {
			h[name] = values
		}
	}
}
