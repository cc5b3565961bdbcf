package limithttp

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
)

// own returns the ResponseWriter of a handler. It has those optional interfaces that the server's one has, and no
// others: a handler that finds http.Flusher may stream. http.Flusher and http.Hijacker are there as well if
// http.ResponseController finds them by Unwrap. http.CloseNotifier is always there: it works in any case.
func (w *response) own() http.ResponseWriter {
	has := 0
	for i, yes := range [...]bool{
		found[http.Flusher](w.ResponseWriter) || found[flushError](w.ResponseWriter), found[http.Hijacker](w.ResponseWriter),
		is[io.ReaderFrom](w.ResponseWriter), is[http.Pusher](w.ResponseWriter),
	} {
		if yes {
			has |= 1 << i
		}
	}
	return own[has](w)
}

// own are the ResponseWriters by what they have: bit 0 is flushes, bit 1 hijacks, bit 2 readsFrom, bit 3 pushes.
var own = [16]func(*response) http.ResponseWriter{
	func(w *response) http.ResponseWriter { return w },
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			flushes
		}{w, flushes{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			hijacks
		}{w, hijacks{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			flushes
			hijacks
		}{w, flushes{w}, hijacks{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			readsFrom
		}{w, readsFrom{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			flushes
			readsFrom
		}{w, flushes{w}, readsFrom{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			hijacks
			readsFrom
		}{w, hijacks{w}, readsFrom{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			flushes
			hijacks
			readsFrom
		}{w, flushes{w}, hijacks{w}, readsFrom{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			pushes
		}{w, pushes{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			flushes
			pushes
		}{w, flushes{w}, pushes{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			hijacks
			pushes
		}{w, hijacks{w}, pushes{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			flushes
			hijacks
			pushes
		}{w, flushes{w}, hijacks{w}, pushes{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			readsFrom
			pushes
		}{w, readsFrom{w}, pushes{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			flushes
			readsFrom
			pushes
		}{w, flushes{w}, readsFrom{w}, pushes{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			hijacks
			readsFrom
			pushes
		}{w, hijacks{w}, readsFrom{w}, pushes{w}}
	},
	func(w *response) http.ResponseWriter {
		return struct {
			*response
			flushes
			hijacks
			readsFrom
			pushes
		}{w, flushes{w}, hijacks{w}, readsFrom{w}, pushes{w}}
	},
}

// flushError is what http.ResponseController looks for before http.Flusher.
type flushError interface{ FlushError() error }

// is reports whether a ResponseWriter has an interface.
func is[T any](w http.ResponseWriter) bool {
	_, ok := w.(T)
	return ok
}

// found reports whether a ResponseWriter has an interface, or one that it unwraps to.
func found[T any](w http.ResponseWriter) bool {
	for !is[T](w) {
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = inner.Unwrap()
	}
	return true
}

// flushes is http.Flusher.
type flushes struct{ of *response }

// FlushError sends what is buffered. It returns an error of the server's, such as
// http.ErrNotSupported.
func (f flushes) FlushError() error {
	err := http.NewResponseController(f.of.ResponseWriter).Flush()
	f.of.begun = f.of.begun || !errors.Is(err, http.ErrNotSupported)
	return err
}

// Flush is FlushError.
func (f flushes) Flush() { _ = f.FlushError() }

// hijacks is http.Hijacker.
type hijacks struct{ of *response }

// Hijack hands the connection to the handler. It returns an error of the server's, such as
// http.ErrNotSupported.
func (h hijacks) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.of.ResponseWriter).Hijack()
	if err != nil {
		return conn, rw, err
	}
	h.of.begun, h.of.conn = true, newHijacked(conn)
	return h.of.conn.own(), rw, nil
}

// readsFrom is io.ReaderFrom.
type readsFrom struct{ of *response }

// untilFile is how much of a file the server copies before it sends the rest without a copy: by that it finds the type.
const untilFile = 512

// ReadFrom lets the server send a file without copying it. It returns the server's error, or that of src. Like the server
// of net/http, and unlike some that wrap it, it begins the response with the first byte.
func (r readsFrom) ReadFrom(src io.Reader) (n int64, err error) {
	if !r.of.begun {
		n, err = io.Copy(struct{ io.Writer }{r.of}, io.LimitReader(src, untilFile))
		if err != nil || n < untilFile {
			return n, err
		}
	}
	rest, err := r.of.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
	return n + rest, err
}

// pushes is http.Pusher.
type pushes struct{ of *response }

// Push asks the server to push a resource. It returns the server's error.
func (p pushes) Push(target string, opts *http.PushOptions) error {
	return p.of.ResponseWriter.(http.Pusher).Push(target, opts)
}
