package idemhttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// stopped is a service while its etcd is stopped and started again.
type stopped struct {
	t            testing.TB
	held         *blocking
	open, closed server // with and without FailOpen

	mu       sync.Mutex
	runs     map[string]int // by key
	reported []error
}

// stopping returns a service with a session of that TTL.
func (f fixture) stopping(ttl time.Duration) *stopped {
	in := f.instance(&concurrency.SessionOptions{TTL: ttl}, nil)
	s := &stopped{t: f.T, held: newBlocking(f.T), runs: map[string]int{}}
	serve := func(open bool) server {
		return in.serve(&idemhttp.Options{FailOpen: open, StoreTimeout: 500 * time.Millisecond, ReportError: s.report}, s.answer)
	}
	s.open, s.closed = serve(true), serve(false)
	return s
}

// answer is a handler that says how often it has run for its key, whether it has an attempt, and what it has read. That of
// /held waits until it is released.
func (s *stopped) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	key := r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	s.runs[key]++
	n := s.runs[key]
	s.mu.Unlock()
	if r.URL.Path == "/held" {
		s.held.begun <- r
		<-s.held.end
	}
	_, claimed := idempotency.FromContext(r.Context())
	w.Header().Set("Location", "/payments/"+key)
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "run %d, claimed %v, length %d, trailer %q: %s", n, claimed, r.ContentLength, r.Trailer.Get("Checksum"), body)
}

func (s *stopped) report(_ *http.Request, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported = append(s.reported, err)
}

// reports returns what was reported since the last call.
func (s *stopped) reports() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.reported
	s.reported = nil
	return all
}

// ran requires a response of the handler.
func (s *stopped) ran(re reply, want string) {
	s.t.Helper()
	require.Equal(s.t, http.StatusCreated, re.StatusCode, re.body)
	require.Equal(s.t, want, re.body)
	require.False(s.t, re.replayed())
	require.Equal(s.t, "/payments/", re.Header.Get("Location")[:10])
	require.Empty(s.t, re.Header.Get("Retry-After"))
}

// refused requires an answer of the Middleware that says when to come again.
func (s *stopped) refused(re reply, codes ...idemhttp.Code) {
	s.t.Helper()
	require.Contains(s.t, codes, re.problem(s.t).Code)
	require.True(s.t, re.problem(s.t).Retryable)
	require.NotEmpty(s.t, re.Header.Get("Retry-After"))
	require.Empty(s.t, re.Header.Get("Location"))
}

// A532: etcd stops, and comes back. With FailOpen, a handler runs without a claim for requests of which the process knows
// nothing, each time, with the body that its client has sent. A request that the process knows as done is replayed, and one
// of which an attempt is in progress, or not recorded yet, does not run. When etcd is back, what was not recorded is, and a
// request runs once again, with a claim.
func TestFailOpenWhileEtcdIsStopped(t *testing.T) {
	t.Parallel()
	f := fixture{testkit.Own(t, 1)}
	s := f.stopping(60 * time.Second)
	defer s.held.release() // before the servers close
	chunked := func(r *http.Request) { r.ContentLength, r.Trailer = -1, http.Header{"Checksum": {"abc"}} }
	large := strings.Repeat("x", 1<<20)

	s.ran(s.open.post("/", "done", "body"), `run 1, claimed true, length 4, trailer "": body`)
	held := s.open.later("/held", "held", "body")
	got(t, s.held.begun, "a begin")
	require.Empty(t, s.reports())
	require.NoError(t, f.Stop(0))

	for n := range 3 {
		s.ran(s.open.post("/", "new", "body"), fmt.Sprintf(`run %d, claimed false, length 4, trailer "": body`, n+1))
	}
	s.ran(s.open.post("/", "chunked", "body", chunked), `run 1, claimed false, length -1, trailer "abc": body`)
	s.ran(s.open.post("/", "empty", ""), `run 1, claimed false, length 0, trailer "": `)
	s.ran(s.open.post("/", "large", large), `run 1, claimed false, length 1048576, trailer "": `+large)
	s.ran(s.open.post("/", "large", large, chunked), `run 2, claimed false, length -1, trailer "abc": `+large)
	for _, err := range s.reports() {
		require.ErrorIs(t, err, idempotency.ErrUnseen)
		require.ErrorIs(t, err, concurrency.ErrUnavailable)
	}
	s.refused(s.closed.post("/", "new", "body"), idemhttp.CodeUnavailable)
	require.Len(t, s.reports(), 1)
	require.True(t, s.open.post("/", "done", "body").replayed())
	require.Equal(t, idemhttp.CodeReused, s.open.post("/", "done", "another").problem(t).Code)
	s.refused(s.open.post("/held", "held", "body"), idemhttp.CodeInProgress)
	s.held.release()
	s.ran(got(t, held, "its response"), `run 1, claimed true, length 4, trailer "": body`) // no other attempt can have begun
	s.refused(s.open.post("/held", "held", "body"), idemhttp.CodeInProgress, idemhttp.CodeUnavailable)
	require.True(t, errors.Is(errors.Join(s.reports()...), idempotency.ErrNotRecorded))

	require.NoError(t, f.Restart(ctxT(t), 0))
	require.Eventually(t, func() bool { return s.open.post("/held", "held", "body").replayed() }, soon, 10*time.Millisecond)
	require.Eventually(t, func() bool { return s.closed.post("/", "probe", "body").StatusCode == http.StatusCreated }, soon, 10*time.Millisecond)
	s.ran(s.open.post("/", "new", "body"), `run 4, claimed true, length 4, trailer "": body`)
	require.True(t, s.open.post("/", "new", "body").replayed())
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(t, map[string]int{"done": 1, "held": 1, "new": 4, "chunked": 1, "empty": 1, "large": 2, "probe": 1}, s.runs)
}

// A532: etcd is away for longer than the TTL, so the attempt in progress is lost. Its request does not run beside it, nor after
// it: its response is withheld, and a duplicate runs when etcd is back, with a claim.
func TestFailOpenWhileTheSessionIsLost(t *testing.T) {
	t.Parallel()
	f := fixture{testkit.Own(t, 1)}
	s := f.stopping(6 * time.Second)
	defer s.held.release()
	held := s.open.later("/held", "held", "body")
	r := got(t, s.held.begun, "a begin")
	require.NoError(t, f.Stop(0))
	testkit.Closed(t, r.Context().Done(), "the attempt is lost")
	s.ran(s.open.post("/", "new", "body"), `run 1, claimed false, length 4, trailer "": body`)
	s.refused(s.open.post("/held", "held", "body"), idemhttp.CodeUnavailable)
	s.held.release()
	s.refused(got(t, held, "its response"), idemhttp.CodeInProgress)
	s.refused(s.open.post("/held", "held", "body"), idemhttp.CodeUnavailable)
	require.NoError(t, f.Restart(ctxT(t), 0))
	var re reply
	require.Eventually(t, func() bool { re = s.open.post("/held", "held", "body"); return re.StatusCode == http.StatusCreated }, soon, 10*time.Millisecond)
	if !re.replayed() { // the outcome of the first attempt counts if etcd has it before a duplicate
		require.Equal(t, `run 2, claimed true, length 4, trailer "": body`, re.body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	require.LessOrEqual(t, s.runs["held"], 2)
}
