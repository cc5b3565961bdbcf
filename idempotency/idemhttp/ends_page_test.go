package idemhttp_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

var update = flag.Bool("update", false, "write the table of ends in docs/guarantees.md")

// What a duplicate gets.
const (
	recorded = "recorded"
	again    = "executes again"
	unknown  = "unknown"
)

// row is a row of the table: ends of an attempt that are one end in each entry.
type row struct {
	end            string
	do, http, grpc []string
	what           map[string]bool // under TakeOver and Refuse
}

// The table of ends in docs/guarantees.md is what a duplicate gets after each of them, under both policies
// and by all three entries.
func TestTableOfEnds(t *testing.T) {
	t.Parallel()
	rows := []*row{
		{end: "a success"}, {end: "a final no"}, {end: "the handler reports that nothing was done"},
		{end: "refused before the work, by its code"}, {end: "ended by the client, a deadline or another call"},
		{end: "a failure"}, {end: "broken off"},
	}
	const word = 2
	of := map[middleware.End]int{middleware.Success: 0, middleware.Final: 1, middleware.Early: 3, middleware.Interrupted: 4, middleware.Failure: 5, middleware.Broken: 6}
	e := newEntries(t)
	add := func(n int, names *[]string, name, what string) {
		*names = append(*names, name)
		if rows[n].what == nil {
			rows[n].what = map[string]bool{}
		}
		rows[n].what[what] = true
	}

	add(0, &rows[0].do, "a value", e.do(nil, false))
	add(1, &rows[1].do, "`Permanent(err)`", e.do(idempotency.Permanent(errors.New("no")), false))
	add(word, &rows[word].do, "`NothingDone(err)`", e.do(idempotency.NothingDone(errors.New("no")), false))
	add(5, &rows[5].do, "any other error", e.do(errors.New("no"), false))
	add(6, &rows[6].do, "a panic", e.do(nil, true))

	for s := 200; s < 600; s++ {
		n, name := of[middleware.EndOfStatus(s)], fmt.Sprint(s)
		switch {
		case http.StatusText(s) == "" && s != 449 && s != 499:
			continue
		case s < 400 || s >= 500:
			name = name[:1] + "xx"
		case n == 1:
			name = "other 4xx"
		}
		add(n, &rows[n].http, name, e.http(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(s) }))
	}
	add(word, &rows[word].http, "`Decide(ctx, Forget, status)`", e.http(func(w http.ResponseWriter, r *http.Request) {
		idemhttp.Decide(r.Context(), idempotency.Forget, 503)
		w.WriteHeader(503)
	}))
	add(6, &rows[6].http, "a panic", e.http(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	add(6, &rows[6].http, "a body shorter than its Content-Length", e.http(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "50")
		_, _ = io.WriteString(w, "half")
	}))

	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		n := of[middleware.EndOfCode(uint32(c))]
		add(n, &rows[n].grpc, c.String(), e.grpc(func() error { return status.Error(c, "no") }))
	}
	add(word, &rows[word].grpc, "`NothingDone(err)`", e.grpc(func() error { return idempotency.NothingDone(status.Error(codes.Unavailable, "no")) }))
	add(1, &rows[1].grpc, "`Permanent(err)`", e.grpc(func() error { return idempotency.Permanent(status.Error(codes.Internal, "no")) }))
	add(6, &rows[6].grpc, "a panic", e.grpc(func() error { panic("no") }))

	page(t, rows)
}

// page compares the table with docs/guarantees.md.
func page(t *testing.T, rows []*row) {
	t.Helper()
	var b strings.Builder
	b.WriteString("| an attempt ends with | `Do` | HTTP | gRPC | a duplicate under `TakeOver` | under `Refuse` |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		require.Len(t, r.what, 1, "%s: %v", r.end, r.what)
		for what := range r.what {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.end, list(r.do), list(r.http), list(r.grpc), what)
		}
	}
	const name, begin, end = "../../docs/guarantees.md", "<!-- ends -->\n", "<!-- /ends -->"
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	head, rest, found := strings.Cut(string(text), begin)
	written, tail, closed := strings.Cut(rest, end)
	require.True(t, found && closed, name)
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(head+begin+b.String()+end+tail), 0o644))
		return
	}
	require.Equal(t, b.String(), written, "run: go test ./idempotency/idemhttp -run TestTableOfEnds -update")
}

// list returns names as a cell.
func list(names []string) string {
	if len(names) == 0 {
		return "–"
	}
	return strings.Join(slices.Compact(names), ", ")
}

// entries are the three ways to have a request executed, under both policies.
type entries struct {
	t        *testing.T
	policies []idempotency.LostPolicy
	stores   []instance
	n        int
}

func newEntries(t *testing.T) *entries {
	f := shared(t)
	e := &entries{t: t, policies: []idempotency.LostPolicy{idempotency.TakeOver, idempotency.Refuse}}
	for _, p := range e.policies {
		e.stores = append(e.stores, f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: p, CacheBytes: -1}))
	}
	return e
}

// both has a request executed, and sent again, under each policy. It returns what the second call got.
func (e *entries) both(call func(in instance, key string) (what string)) string {
	var all []string
	for _, in := range e.stores {
		e.n++
		key := fmt.Sprint("k", e.n)
		call(in, key)
		all = append(all, call(in, key))
	}
	return strings.Join(all, " | ")
}

// ran returns what a call got that has called the function, or has not.
func ran(called, refused bool) string {
	switch {
	case called:
		return again
	case refused:
		return unknown
	}
	return recorded
}

func (e *entries) do(result error, panics bool) string {
	return e.both(func(in instance, key string) string {
		called, err := false, error(nil)
		func() {
			defer func() { _ = recover() }()
			_, err = idempotency.Do(ctxT(e.t), in.Store, idempotency.Key{Op: "do", ID: key}, nil, func(context.Context, *idempotency.Attempt) (int, error) {
				called = true
				if panics {
					panic("no")
				}
				return 1, result
			})
		}()
		return ran(called, errors.Is(err, idempotency.ErrUnknown))
	})
}

func (e *entries) http(h http.HandlerFunc) string {
	return e.both(func(in instance, key string) string {
		called := false
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctxT(e.t), http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", key)
		func() {
			defer func() { _ = recover() }()
			in.middleware(nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				called = true
				h(w, r)
			})).ServeHTTP(w, r)
		}()
		return ran(called, strings.Contains(w.Body.String(), string(idemhttp.CodeUnknown)))
	})
}

func (e *entries) grpc(end func() error) string {
	return e.both(func(in instance, key string) string {
		called := false
		serve, err := idemgrpc.UnaryServerInterceptor(in.Store, nil)
		require.NoError(e.t, err)
		ctx := metadata.NewIncomingContext(ctxT(e.t), metadata.Pairs("idempotency-key", key))
		func() {
			defer func() { _ = recover() }()
			_, err = serve(ctx, &structpb.Struct{}, &grpc.UnaryServerInfo{FullMethod: "/test/Pay"}, func(context.Context, any) (any, error) {
				called = true
				return &structpb.Struct{}, end()
			})
		}()
		return ran(called, strings.Contains(fmt.Sprint(status.Convert(err).Details()), idemgrpc.ReasonUnknown))
	})
}
