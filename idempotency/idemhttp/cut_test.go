package idemhttp_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A19: a response above MaxResponse that breaks off has an unknown outcome, as one below it has.
func TestLargeResponseBreaksOff(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	reported := make(chan error, 10)
	s := in.serve(&idemhttp.Options{MaxResponse: 1000, ReportError: func(_ *http.Request, err error) { reported <- err }}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/decided" {
			idemhttp.Decide(r.Context(), idempotency.Remember)
		}
		length := 3000
		if r.URL.Path == "/grows" {
			length = 900 // the limit is not passed: a part is refused
		}
		w.Header().Set("Content-Length", strconv.Itoa(length))
		_, _ = io.WriteString(w, strings.Repeat("x", 800))
		_, err := io.WriteString(w, strings.Repeat("x", 800))
		require.Equal(t, r.URL.Path == "/grows", err != nil)
	})
	for _, path := range []string{"/", "/grows"} {
		_, err := s.send(s.request(path, "k", "body"))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.ErrorContains(t, got(t, reported, "an error"), "shorter than its Content-Length")
		require.ErrorIs(t, got(t, reported, "an error"), idempotency.ErrUnknown, "when it ends")
		require.Equal(t, idemhttp.CodeUnknown, s.post(path, "k", "body").problem(t).Code, path)
		require.ErrorIs(t, got(t, reported, "an error"), idempotency.ErrUnknown, "and for a duplicate")
	}
	_, err := s.send(s.request("/decided", "k", "body"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.True(t, s.post("/decided", "k", "body").replayed())
}

// The client that goes is no reason to take the work for broken off.
func TestClientDisconnectsDuringALargeResponse(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: idempotency.Refuse})
	begun, returned := make(chan struct{}), make(chan struct{})
	s := in.serve(&idemhttp.Options{MaxResponse: 1000}, func(w http.ResponseWriter, r *http.Request) {
		defer close(returned)
		w.Header().Set("Content-Length", strconv.Itoa(1<<30))
		close(begun)
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(ctxT(t))
	left := make(chan error, 1)
	r := s.request("/", "k", "body").WithContext(ctx)
	go func() {
		_, err := s.send(r)
		left <- err
	}()
	got(t, begun, "a begin")
	cancel()
	require.Error(t, got(t, left, "an end"))
	got(t, returned, "the handler's end")
	var re reply
	require.Eventually(t, func() bool { re = s.post("/", "k", "body"); return re.replayed() }, soon, 1e6)
	require.Equal(t, "true", re.Header.Get("Idempotency-Body-Omitted"))
}
