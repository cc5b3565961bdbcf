package idemhttp

import (
	"bufio"
	"net"
	"net/http"
)

// own returns the ResponseWriter of the handler. It is an http.Flusher or http.Hijacker if http.ResponseController finds
// one in the server's: a handler that finds http.Flusher may stream, and what cannot be flushed is no stream.
func (rec *recorder) own() http.ResponseWriter {
	hijacks := found[http.Hijacker](rec.w)
	switch flushes := found[http.Flusher](rec.w) || found[flushError](rec.w); {
	case flushes && hijacks:
		return struct {
			*recorder
			flusher
			hijacker
		}{rec, flusher{rec}, hijacker{rec}}
	case flushes:
		return struct {
			*recorder
			flusher
		}{rec, flusher{rec}}
	case hijacks:
		return struct {
			*recorder
			hijacker
		}{rec, hijacker{rec}}
	}
	return rec
}

// flushError is what http.ResponseController looks for before http.Flusher.
type flushError interface{ FlushError() error }

// found reports whether a ResponseWriter has an interface, or one that it unwraps to.
func found[T any](w http.ResponseWriter) bool {
	for {
		if _, ok := w.(T); ok {
			return true
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = inner.Unwrap()
	}
}

// flusher is http.Flusher.
type flusher struct{ of *recorder }

// FlushError streams the response. It returns an error of the server's, such as http.ErrNotSupported, and none if the
// connection has failed, as Write.
func (f flusher) FlushError() error { return f.of.flush() }

// Flush is FlushError.
func (f flusher) Flush() { _ = f.of.flush() }

// hijacker is http.Hijacker.
type hijacker struct{ of *recorder }

// Hijack sends what was written and hands the connection to the handler. It returns http.ErrHijacked,
// http.ErrNotSupported or the error of the server.
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.of.hijack() }
