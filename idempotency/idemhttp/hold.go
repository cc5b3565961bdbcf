package idemhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// A client must not have a whole response before its outcome is settled: if the response is then refused, a response that
// breaks off is all that shows it. So what would be the end of a streamed response is kept back.

// whole reports whether a response is complete with its headers.
func (rec *recorder) whole() bool { return rec.length == 0 || empty(rec.r, rec.status) }

// pass sends a part of the body, but for its last byte if the body ends with it. send sends that.
func (rec *recorder) pass(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := rec.passHeld(); err != nil { // it continues behind its last frame
		return 0, err
	}
	n := len(p)
	if rec.sent += int64(n); !rec.settled && rec.complete() {
		p, rec.held = p[:n-1], []byte{p[n-1]}
		if len(p) == 0 {
			return n, nil
		}
	}
	sent, err := rec.transmit(p)
	if err == nil {
		sent = n
	}
	return sent, err
}

// transmit writes to the server, until that fails, or the client does not read.
func (rec *recorder) transmit(p []byte) (n int, err error) {
	if rec.failure == nil {
		n, rec.failure = rec.out.write(rec.w, p)
	}
	return n, rec.failure
}

// breakOff keeps the rest of a response that is streamed from the client. A panic alone does not, if a handler in front
// recovers it.
func (rec *recorder) breakOff() {
	if rec.live && !rec.hijacked {
		_ = rec.ctl.SetWriteDeadline(time.Unix(1, 0))
	}
}

// passHeld sends what is kept back.
func (rec *recorder) passHeld() error {
	if len(rec.held) == 0 {
		return rec.failure
	}
	_, err := rec.transmit(rec.held)
	rec.held = nil
	return err
}

// complete reports whether the client has the whole body by its Content-Length, or its last frame.
func (rec *recorder) complete() bool {
	return rec.length > 0 && rec.sent >= rec.length || rec.frames != nil && rec.frames.over
}

// What a response shows of its end when its handler has returned.

// cut reports whether the body is shorter than its Content-Length.
func (rec *recorder) cut() bool {
	return !rec.hijacked && rec.length > rec.taken &&
		!empty(rec.r, rec.status) && len(rec.head["Transfer-Encoding"]) == 0
}

// entire reports whether the response is whole by its Content-Length or its last frame, or since it has no body.
func (rec *recorder) entire() bool {
	return empty(rec.r, rec.status) || rec.length >= 0 && rec.taken >= rec.length || rec.frames != nil && rec.frames.over
}

// late504 reports whether what came on top of the response is the 504 of a timeout behind the Middleware, such as chi's, that waits
// for its handler: it writes nothing else. A recoverer's status after it replaces it.
func (rec *recorder) late504() bool {
	return rec.failed == http.StatusGatewayTimeout && len(rec.text) == 0
}

// wholeJSON reports whether a body with these headers is an object or an array of JSON, of which a part has no end.
func wholeJSON(h http.Header, body []byte) bool {
	if !(media{name: mediaType(h)}).isJSON() {
		return false
	}
	body = bytes.TrimLeft(plainBody(h, body), " \t\r\n")
	return len(body) > 0 && (body[0] == '{' || body[0] == '[') && json.Valid(body)
}

// unfinished reports whether the body has begun and is without its last frame, also if the client has left.
func (rec *recorder) unfinished() bool {
	return rec.frames != nil && rec.written > 0 && !rec.frames.over
}

// fell reports whether a status of 5xx came on top of another one, also of a whole response: a commit may have failed after it.
// The client gets it, or a response that breaks off. On top of a late success that shows its end, also as JSON, the 504 of a
// timeout is ignored, as by net/http; an error may be what the timeout has made of the handler's work.
func (rec *recorder) fell() bool {
	ignored := rec.late504() && rec.status < 400 && (rec.entire() || !rec.over && wholeJSON(rec.head, rec.body))
	return rec.failed != 0 && !rec.hijacked && !ignored
}

// fail puts the 5xx that came later, and what was written after it, in the place of a response that was not sent.
func (rec *recorder) fail() {
	rec.after.Del("Content-Length") // of the other body
	rec.status, rec.head, rec.body, rec.length, rec.frames = rec.failed, rec.after, rec.text, -1, nil
	rec.failed, rec.over, rec.stopped = 0, false, false
}

// doubt has a response that is not sent yet say that the outcome is unknown, as the answer to the next duplicate does: a
// repetition would not be executed, so it says no time for one.
func doubt(rec *recorder) {
	if rec.live || rec.hijacked {
		return
	}
	rec.head.Set(outcomeHeader, string(CodeUnknown))
	rec.head.Del("Retry-After")
}

// remember takes the response for what the handler wants to be recorded, which has said Remember of one of its statuses. It
// reports whether that is the 5xx that came later: the client gets it.
func (rec *recorder) remember(said word) bool {
	first := said.counts(rec.status)
	if first { // a context that has ended did not stop the handler, and a 5xx on top of a whole response is not about the request
		rec.stopped = false
		if rec.entire() {
			rec.failed = 0
		}
	}
	if !rec.fell() || rec.live || !first && !said.counts(rec.failed) {
		return false
	}
	rec.fail()
	return true
}

// contexts says which contexts of a handler have ended before its attempt was settled.
type contexts struct {
	own    bool // the attempt's
	client bool // that of the client; false if the handler has not asked for it
}

// ended returns which of them have. A handler that has settled its attempt was stopped by none.
func (v *visit) ended(a *idempotency.Attempt) contexts {
	err := a.Err()
	if errors.Is(err, idempotency.ErrSettled) {
		return contexts{} // the client's context ends with the attempt's
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return contexts{own: err != nil, client: v.asked && v.client.Ended()}
}

// stops reports whether the handler may have returned because a context had ended: the response shows no end of its own.
// A call of RPC shows it by its status or its last frame. A handler that streams nothing is taken for one that does not
// look at the attempt's context; and one that writes a part, for one that does not look at the context of a client that had
// left when the response began.
func (rec *recorder) stops(ended contexts) bool {
	switch {
	case rec.hijacked:
		return false
	case rec.silent || rec.broken:
		return ended.own || ended.client
	case rec.status >= http.StatusMultipleChoices, rec.protocol != plainHTTP, isCall(rec.r), rec.entire():
		return false
	case rec.live:
		return ended.own || ended.client && (!rec.gone || rec.taken == 0)
	}
	return ended.client && !rec.gone
}

// withheld reports whether the client must not get the response: its attempt counts as lost, and the client would take
// the response for a success.
func (rec *recorder) withheld(end middleware.End, res middleware.Result) bool {
	switch {
	case rec.stopped, rec.unread != nil:
		return res.Action != idempotency.Remember
	case rec.hijacked, end != middleware.Success && !rec.silent:
		return false
	}
	return res.Lost(rec.ctx)
}
