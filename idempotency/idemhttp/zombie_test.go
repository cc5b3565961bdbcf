package idemhttp_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// answersOfZombies are handlers whose answers must reach no client.
func answersOfZombies() map[string]http.HandlerFunc {
	decide := func(what idempotency.Action, status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			idemhttp.Decide(r.Context(), what)
			w.WriteHeader(status)
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code) }
	}
	return map[string]http.HandlerFunc{
		"/refused":   status(http.StatusPaymentRequired),
		"/later":     status(http.StatusServiceUnavailable),
		"/forgotten": decide(idempotency.Forget, http.StatusPaymentRequired),
		"/abandoned": decide(idempotency.Abandon, http.StatusInternalServerError),
		"/success":   decide(idempotency.Forget, http.StatusOK),
		"/stream": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusPaymentRequired)
			_, _ = io.WriteString(w, "no ")
			w.(http.Flusher).Flush()
		},
	}
}

// I01: what a handler answers after its session was lost, and another attempt has had another
// outcome, reaches no client, whatever is done with such answers otherwise: a refusal that
// would have been recorded, one that gives the key free, one that leaves the request as
// lost, and a success that is not to be repeated. What was sent already is cut off.
func TestRefusalOfAZombie(t *testing.T) {
	t.Parallel()
	f := shared(t)
	answers := answersOfZombies()
	var begun, ended sync.WaitGroup
	begun.Add(len(answers))
	ended.Add(len(answers))
	end := make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	t.Cleanup(release)
	a := f.instance(nil, nil)
	sa, sb := a.serve(nil, func(w http.ResponseWriter, r *http.Request) {
		begun.Done()
		<-r.Context().Done()
		ended.Done()
		<-end
		answers[r.URL.Path](w, r)
	}), f.instance(nil, nil).serve(nil, paid)
	zombies := map[string]<-chan reply{}
	for path := range answers {
		zombies[path] = sa.later(path, path[1:], "body")
	}
	begun.Wait()
	require.NoError(t, f.ExpireLease(ctxT(t), a.sess.Lease()))
	ended.Wait()
	for path := range answers {
		require.Eventually(t, func() bool { return sb.post(path, path[1:], "body").StatusCode == http.StatusCreated }, soon, 10*time.Millisecond)
	}
	release()
	for path, zombie := range zombies {
		if path == "/stream" {
			continue // its connection breaks, and nothing is received
		}
		re := got(t, zombie, "an answer")
		require.Equal(t, idemhttp.CodeInProgress, re.problem(t).Code, path)
		require.NotEmpty(t, re.Header.Get("Retry-After"), path)
	}
	select {
	case re := <-zombies["/stream"]:
		require.Fail(t, "a whole answer", re.body)
	default:
	}
	for path := range answers {
		re := sb.post(path, path[1:], "body")
		require.True(t, re.replayed(), path)
		require.Equal(t, http.StatusCreated, re.StatusCode, path)
	}
	require.EqualValues(t, len(answers), sb.calls.Load())
}

// A530: the same of a handler that another attempt has fenced while its session lives: the context of the handler ends with
// its first write that etcd refuses, and what it answers then is withheld.
func TestAnswerOfAFencedHandler(t *testing.T) {
	t.Parallel()
	f := shared(t)
	answers := answersOfZombies()
	a, sb := f.instance(nil, nil), f.instance(nil, nil).serve(nil, paid)
	sa := a.serve(nil, func(w http.ResponseWriter, r *http.Request) {
		at, _ := idempotency.FromContext(r.Context())
		_, err := f.Client().Delete(ctxT(t), f.Keys("/" + string(at.Ref()))[0])
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, sb.post(r.URL.Path, r.URL.Path[1:], "body").StatusCode)
		require.ErrorIs(t, at.SetNote("order 7"), idempotency.ErrFenced)
		require.ErrorIs(t, context.Cause(r.Context()), idempotency.ErrFenced)
		answers[r.URL.Path](w, r)
	})
	for path := range answers {
		re, err := sa.send(sa.request(path, path[1:], "body"))
		if path == "/stream" {
			require.Error(t, err)
		} else {
			require.NoError(t, err)
			require.Equal(t, idemhttp.CodeInProgress, re.problem(t).Code, path)
			require.NotEmpty(t, re.Header.Get("Retry-After"), path)
		}
		re = sa.post(path, path[1:], "body")
		require.True(t, re.replayed(), path)
		require.Equal(t, http.StatusCreated, re.StatusCode, path)
	}
	require.EqualValues(t, len(answers), sb.calls.Load())
	require.EqualValues(t, len(answers), a.Stats().Fenced)
}
