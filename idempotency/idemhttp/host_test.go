package idemhttp_test

import (
	"crypto/rand"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

func host(name string) with { return func(r *http.Request) { r.Host = name } }

// I30: a key is for one virtual host. A request for another host is refused, whatever Op and Payload
// are; while the first request is in progress, too.
func TestKeyAtTwoHosts(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	body := func(_ *http.Request, body []byte) (any, error) { return body, nil }
	for name, o := range map[string]*idemhttp.Options{"default": nil, "one": {Op: idemhttp.OneForAll}, "body": {Payload: body}} {
		t.Run(name, func(t *testing.T) {
			h := newBlocking(t)
			defer h.release() // before the servers close
			a, b := in.serve(o, h.ServeHTTP), f.instance(nil, nil).serve(o, paid)
			first := a.later("/pay", name, "body", host("shop-a.example:8443"))
			got(t, h.begun, "a begin")
			reused := func() {
				for _, s := range []server{a, b} {
					require.Equal(t, idemhttp.CodeReused, s.post("/pay", name, "body", host("shop-b.example")).problem(t).Code)
				}
			}
			reused()
			h.release()
			require.Equal(t, http.StatusCreated, got(t, first, "the response").StatusCode)
			reused()
			for _, same := range []string{"shop-a.example", "Shop-A.example.", "shop-a.example:443"} {
				require.True(t, b.post("/pay", name, "body", host(same)).replayed(), same)
			}
			require.Zero(t, b.calls.Load())
		})
	}
	// An address is no name of a virtual host: the instances of a fleet have each their own.
	s := in.serve(nil, paid)
	require.False(t, s.post("/pay", "address", "body", host("127.0.0.1:80")).replayed())
	for _, address := range []string{"10.0.0.7", "[::1]:8080", "[fe80::1]"} {
		require.True(t, s.post("/pay", "address", "body", host(address)).replayed(), address)
	}
}

// A705: a running service that gets another Host refuses retries, and reports how to change it. With "" in between, no retry is
// refused, neither between the former processes and those, nor between those and the next ones. Nor is one if Each compares
// more than before.
func TestHostIsChangedInTwoSteps(t *testing.T) {
	t.Parallel()
	f := shared(t)
	said := make(chan error, 10)
	as := func(name string, also ...idempotency.Option) server {
		return f.instance(nil, nil).serve(&idemhttp.Options{
			Host:        func(*http.Request) string { return name },
			Each:        func(*http.Request) []idempotency.Option { return also },
			ReportError: func(_ *http.Request, err error) { said <- err },
		}, paid)
	}
	former, none, next := as("pay.example"), as(""), as("example.com")
	more := as("", idempotency.AlsoCompare("account 7"))
	for _, step := range [][2]server{{former, none}, {none, former}, {none, next}, {next, none}, {none, more}, {more, none}} {
		key := rand.Text()
		require.False(t, step[0].post("/pay", key, "body").replayed())
		require.True(t, step[1].post("/pay", key, "body").replayed())
	}
	require.False(t, former.post("/pay", "k", "body").replayed())
	require.Equal(t, idemhttp.CodeReused, next.post("/pay", "k", "body").problem(t).Code)
	require.ErrorContains(t, got(t, said, "a report"), `if Options.Host was changed, it has to return ""`)
}
