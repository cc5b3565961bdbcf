package idemhttp

import "time"

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

// transmit writes to the server, until that fails.
func (rec *recorder) transmit(p []byte) (n int, err error) {
	if rec.failure == nil {
		n, rec.failure = rec.w.Write(p)
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
