package idemhttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// I20, I21: a response above the limit, with or without a length: the first client gets all
// of it, duplicates status and headers, and nothing is done again.
func TestLargeResponse(t *testing.T) {
	t.Parallel()
	f := shared(t)
	part := []byte(strings.Repeat("x", 1<<20))
	a := f.instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/reports/1")
		w.Header().Set("Content-Type", "text/csv")
		if r.URL.Path == "/sized" {
			w.Header().Set("Content-Length", strconv.Itoa(10<<20))
		}
		w.WriteHeader(http.StatusCreated)
		for range 10 {
			if n, err := w.Write(part); n != len(part) || err != nil {
				t.Error(n, err)
			}
		}
	})
	b := f.instance(nil, nil).serve(nil, paid)
	for _, path := range []string{"/", "/sized"} {
		first := a.post(path, "k", "body")
		require.Equal(t, http.StatusCreated, first.StatusCode)
		require.Len(t, first.body, 10<<20)
		for _, s := range []server{a, b} {
			re := s.post(path, "k", "body")
			for re.StatusCode == http.StatusConflict { // the client has all of it before the handler has returned
				re = s.post(path, "k", "body")
			}
			require.True(t, re.replayed())
			require.Equal(t, http.StatusCreated, re.StatusCode)
			require.Equal(t, "/reports/1", re.Header.Get("Location"))
			require.Equal(t, "true", re.Header.Get("Idempotency-Body-Omitted"))
			require.Empty(t, re.body)
			require.Empty(t, re.Header.Get("Content-Type"))
		}
	}
	require.EqualValues(t, 2, a.calls.Load())
	require.Zero(t, b.calls.Load())
}

// What says in front that it is above the limit is not held back up to there.
func TestLengthAboveTheLimit(t *testing.T) {
	t.Parallel()
	f := shared(t)
	part, next := strings.Repeat("x", 64<<10), make(chan struct{})
	s := f.instance(nil, nil).serve(nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(2<<20))
		for range 2 << 20 / len(part) {
			_, _ = io.WriteString(w, part)
			<-next
		}
	})
	t.Cleanup(func() { close(next) }) // before the server waits for the handler
	resp, err := s.Client().Do(s.request("/", "k", ""))
	require.NoError(t, err)
	defer resp.Body.Close()
	for range 2 << 20 / len(part) {
		read := make(chan error, 1)
		go func() {
			_, err := io.CopyN(io.Discard, resp.Body, int64(len(part)/2)) // the rest may wait in buffers
			read <- err
		}()
		require.NoError(t, got(t, read, "the client has the part"))
		next <- struct{}{}
	}
}

// A body of just the limit is kept, one byte more is not. A MiB, which is more than one value
// in etcd.
func TestLimitOfResponses(t *testing.T) {
	t.Parallel()
	f := shared(t)
	size := func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.RawQuery)
		_, _ = io.WriteString(w, strings.Repeat("x", n))
	}
	a, b := f.instance(nil, nil).serve(nil, size), f.instance(nil, nil).serve(nil, size)
	for n, kept := range map[int]int{1<<20 - 1: 1<<20 - 1, 1 << 20: 1 << 20, 1<<20 + 1: 0} {
		path := "/?" + strconv.Itoa(n)
		require.Len(t, a.post(path, "k"+strconv.Itoa(n), "").body, n)
		re := b.post(path, "k"+strconv.Itoa(n), "")
		require.True(t, re.replayed())
		require.Len(t, re.body, kept)
	}
}

// I26: what is flushed reaches the client at once and in order, and is kept.
func TestFlush(t *testing.T) {
	t.Parallel()
	f := shared(t)
	next := make(chan struct{})
	s := f.instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for n := range 3 {
			fmt.Fprintf(w, "data: %d\n", n)
			require.NoError(t, http.NewResponseController(w).Flush())
			<-next
		}
		fmt.Fprint(w, "end\n")
	})
	resp, err := s.Client().Do(s.request("/", "k", ""))
	require.NoError(t, err)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for n := range 3 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("data: %d\n", n), line)
		require.Equal(t, idemhttp.CodeInProgress, s.post("/", "k", "").problem(t).Code)
		next <- struct{}{}
	}
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.Equal(t, "end\n", string(rest))
	re := s.post("/", "k", "")
	require.True(t, re.replayed())
	require.Equal(t, "data: 0\ndata: 1\ndata: 2\nend\n", re.body)
	require.Equal(t, "text/event-stream", re.Header.Get("Content-Type"))
	require.EqualValues(t, 1, s.calls.Load())
}

// I20: a handler that hijacks the connection runs once, too.
func TestHijack(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
		_ = rw.Flush()
		_, err = w.Write([]byte("x"))
		require.ErrorIs(t, err, http.ErrHijacked)
		_ = conn.Close()
	})
	require.Equal(t, "hi", s.post("/", "k", "").body)
	require.Eventually(t, func() bool { // the client may have the response before it is recorded
		return s.post("/", "k", "").problem(t).Code == idemhttp.CodeNotKept
	}, soon, 5*time.Millisecond)
	require.EqualValues(t, 1, s.calls.Load())
}

// A287: a handler that has hijacked its connection and panics has an unknown outcome, as after any panic, whatever it has
// said or sent before: it is not recorded, and under Refuse nothing runs until an operator has resolved it.
func TestHijackThenPanic(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]func(context.Context){
		"nothing":  func(context.Context) {},
		"Forget":   func(ctx context.Context) { idemhttp.Decide(ctx, idempotency.Forget) },
		"Remember": func(ctx context.Context) { idemhttp.Decide(ctx, idempotency.Remember) },
	} {
		for policy, code := range map[idempotency.LostPolicy]int{idempotency.Refuse: http.StatusConflict, idempotency.TakeOver: http.StatusCreated} {
			in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: policy})
			reported := make(chan error, 10)
			var s server
			s = in.serve(&idemhttp.Options{ReportError: func(_ *http.Request, err error) { reported <- err }}, func(w http.ResponseWriter, r *http.Request) {
				if s.calls.Load() > 1 {
					paid(w, r)
					return
				}
				says(r.Context())
				conn, rw, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close() // net/http does not
				_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
				_ = rw.Flush()
				panic(http.ErrAbortHandler)
			})
			require.Equal(t, "hi", s.post("/", "k", "").body, "the client has what the handler has sent")
			if policy == idempotency.Refuse {
				require.ErrorIs(t, got(t, reported, "the end"), idempotency.ErrUnknown)
			}
			var re reply
			require.Eventually(t, func() bool { // the client may have the response before the end
				re = s.post("/", "k", "")
				return re.StatusCode != http.StatusConflict || re.problem(t).Code != idemhttp.CodeInProgress
			}, soon, 5*time.Millisecond)
			require.Equal(t, code, re.StatusCode, "%s, %v: %s", name, policy, re.body)
			if policy == idempotency.Refuse {
				require.Equal(t, idemhttp.CodeUnknown, re.problem(t).Code)
				require.ErrorIs(t, in.Resolve(ctxT(t), re.problem(t).Ref, idempotency.NotDone()), idempotency.ErrAlive)
			}
			require.EqualValues(t, map[bool]int{true: 1, false: 2}[policy == idempotency.Refuse], s.calls.Load())
		}
	}
}

// A ResponseController reaches the server's connection through the recorder.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(nil, func(w http.ResponseWriter, r *http.Request) {
		ctl := http.NewResponseController(w)
		require.NoError(t, ctl.SetReadDeadline(time.Now().Add(time.Minute)))
		require.NoError(t, ctl.SetWriteDeadline(time.Now().Add(time.Minute)))
		require.NoError(t, ctl.EnableFullDuplex())
		paid(w, r)
	})
	require.Equal(t, http.StatusCreated, s.post("/", "k", "").StatusCode)
}
