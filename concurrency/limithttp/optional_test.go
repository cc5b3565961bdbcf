package limithttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// What a server's ResponseWriter can have. Each notes that it was called.
type (
	calls      struct{ of string }
	canFlush   struct{ *calls }
	canHijack  struct{ *calls }
	canRead    struct{ *calls }
	canPush    struct{ *calls }
	unwraps    struct{ http.ResponseWriter }
	flushFails struct{ http.ResponseWriter }
)

var errGone = errors.New("the client has gone")

func (c canFlush) Flush() { c.of += "flush " }
func (c canHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c.of += "hijack "
	return nil, nil, errGone
}
func (c canRead) ReadFrom(r io.Reader) (int64, error) { c.of += "read "; return io.Copy(io.Discard, r) }
func (c canPush) Push(target string, _ *http.PushOptions) error {
	c.of += "push " + target
	return errGone
}
func (u unwraps) Unwrap() http.ResponseWriter { return u.ResponseWriter }
func (flushFails) FlushError() error          { return errGone }

// behind returns the ResponseWriter that a handler gets.
func behind(t *testing.T, server http.ResponseWriter) (got http.ResponseWriter) {
	t.Helper()
	grant := func(_ *concurrency.Semaphore, ctx context.Context, fn func(context.Context, *concurrency.Permit) error, _ ...concurrency.AcquireOption) error {
		return fn(ctx, nil)
	}
	stubbed(t, Options{}, grant, func(w http.ResponseWriter, _ *http.Request) { got = w }).
		ServeHTTP(server, httptest.NewRequest(http.MethodGet, "/", nil))
	return got
}

// TestOptionalInterfaces: a handler finds the optional interfaces of its server, each of which works, and no others (A167
// in internal/proof/tested-failures.md). All sixteen sets of them.
func TestOptionalInterfaces(t *testing.T) {
	t.Parallel()
	type bare = http.ResponseWriter
	c := new(calls)
	f, h, r, p := canFlush{c}, canHijack{c}, canRead{c}, canPush{c}
	b := bare(&sink{http.Header{}})
	for has, server := range []http.ResponseWriter{
		0: b,
		1: struct {
			bare
			canFlush
		}{b, f},
		2: struct {
			bare
			canHijack
		}{b, h},
		3: struct {
			bare
			canFlush
			canHijack
		}{b, f, h},
		4: struct {
			bare
			canRead
		}{b, r},
		5: struct {
			bare
			canFlush
			canRead
		}{b, f, r},
		6: struct {
			bare
			canHijack
			canRead
		}{b, h, r},
		7: struct {
			bare
			canFlush
			canHijack
			canRead
		}{b, f, h, r},
		8: struct {
			bare
			canPush
		}{b, p},
		9: struct {
			bare
			canFlush
			canPush
		}{b, f, p},
		10: struct {
			bare
			canHijack
			canPush
		}{b, h, p},
		11: struct {
			bare
			canFlush
			canHijack
			canPush
		}{b, f, h, p},
		12: struct {
			bare
			canRead
			canPush
		}{b, r, p},
		13: struct {
			bare
			canFlush
			canRead
			canPush
		}{b, f, r, p},
		14: struct {
			bare
			canHijack
			canRead
			canPush
		}{b, h, r, p},
		15: struct {
			bare
			canFlush
			canHijack
			canRead
			canPush
		}{b, f, h, r, p},
	} {
		w := behind(t, server)
		c.of = ""
		want := ""
		flusher, flushes := w.(http.Flusher)
		require.Equal(t, has&1 > 0, flushes, has)
		if flushes {
			flusher.Flush()
			want += "flush "
		}
		hijacker, hijacks := w.(http.Hijacker)
		require.Equal(t, has&2 > 0, hijacks, has)
		if hijacks {
			_, _, err := hijacker.Hijack()
			require.ErrorIs(t, err, errGone)
			want += "hijack "
		}
		reader, reads := w.(io.ReaderFrom)
		require.Equal(t, has&4 > 0, reads, has)
		if reads {
			n, err := reader.ReadFrom(strings.NewReader(strings.Repeat("x", 1000))) // longer than what is copied before
			require.NoError(t, err)
			require.EqualValues(t, 1000, n)
			want += "read "
		}
		pusher, pushes := w.(http.Pusher)
		require.Equal(t, has&8 > 0, pushes, has)
		if pushes {
			require.ErrorIs(t, pusher.Push("/style.css", nil), errGone)
			want += "push /style.css"
		}
		require.Equal(t, want, c.of, has)
	}
}

// TestOptionalBehindOthers: behind http.TimeoutHandler a handler hears that it cannot flush; behind a ResponseWriter that
// unwraps to one that can, it can, and the error of a flush arrives.
func TestOptionalBehindOthers(t *testing.T) {
	t.Parallel()
	grant := func(_ *concurrency.Semaphore, ctx context.Context, fn func(context.Context, *concurrency.Permit) error, _ ...concurrency.AcquireOption) error {
		return fn(ctx, nil)
	}
	asked := 0
	limited := stubbed(t, Options{}, grant, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, flushes := w.(http.Flusher)
		_, hijacks := w.(http.Hijacker)
		require.False(t, flushes || hijacks)
		require.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
	})
	http.TimeoutHandler(limited, time.Minute, "late").ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, 1, asked)

	c := new(calls)
	w := behind(t, unwraps{unwraps{struct {
		http.ResponseWriter
		canFlush
		canPush
		canHijack
	}{&sink{http.Header{}}, canFlush{c}, canPush{c}, canHijack{c}}}})
	w.(http.Flusher).Flush()
	_, _, err := http.NewResponseController(w).Hijack()
	require.ErrorIs(t, err, errGone)
	require.Equal(t, "flush hijack ", c.of)
	_, pushes := w.(http.Pusher)
	require.False(t, pushes, "what is in front must not be passed over")

	require.ErrorIs(t, http.NewResponseController(behind(t, flushFails{&sink{http.Header{}}})).Flush(), errGone)
}

// TestCopyOfAnErrorThatWrapsEOF: a copy that breaks off returns why, whatever the error wraps.
func TestCopyOfAnErrorThatWrapsEOF(t *testing.T) {
	t.Parallel()
	w := &response{ResponseWriter: &recorder{ResponseRecorder: httptest.NewRecorder()}}
	broken := fmt.Errorf("the other service: %w", io.EOF)
	_, err := readsFrom{w}.ReadFrom(iotest.ErrReader(broken))
	require.Equal(t, broken, err)
}
