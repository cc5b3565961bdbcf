package idemhttp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// V10: an option that asks the request for a value of its form emptied the form of the handler, whose work on nothing was
// recorded as done; and one that reads the body saw nothing, so that its policy did not apply. Each has the whole body, and
// what it parses is its own.
func TestCallbacksReadTheBody(t *testing.T) {
	t.Parallel()
	f := shared(t)
	form := header("Content-Type", "application/x-www-form-urlencoded")
	seen := func(r *http.Request) string { return r.PostFormValue("order") }
	raw := func(r *http.Request) string {
		b, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(b)
	}
	const whole = "order=17&cents=100"
	var got []string
	note := func(s string) string { got = append(got, s); return s }
	for name, o := range map[string]*idemhttp.Options{
		"Note":    {Note: func(r *http.Request, body []byte) string { note(string(body)); return note(seen(r)) }},
		"Each":    {Each: func(r *http.Request) []idempotency.Option { note(seen(r)); return nil }},
		"Host":    {Host: func(r *http.Request) string { return note(seen(r)) }},
		"Payload": {Payload: func(r *http.Request, _ []byte) (any, error) { return note(seen(r)), nil }},
		"raw":     {Each: func(r *http.Request) []idempotency.Option { note(raw(r)); return nil }, Note: func(r *http.Request, _ []byte) string { return note(raw(r)) }},
		"passes":  {Optional: true, ReportError: func(r *http.Request, _ error) { note(seen(r)) }},
	} {
		got = nil
		s := f.instance(nil, nil).serve(o, func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "order %s, %s cents", r.FormValue("order"), r.FormValue("cents"))
		})
		if name == "passes" {
			require.Equal(t, "order 17, 100 cents", s.post("/"+name, "", whole, form, header("X-Idempotency-Key", "k")).body)
			require.Equal(t, []string{""}, got, "of a request that passes, nothing was read")
			continue
		}
		require.Equal(t, "order 17, 100 cents", s.post("/"+name, "k", whole, form).body, name)
		for _, what := range got {
			require.Contains(t, []string{"17", whole}, what, name)
		}
		require.Len(t, got, map[string]int{"Note": 2, "raw": 2, "Each": 1, "Host": 1, "Payload": 1}[name], name)
		require.Equal(t, http.StatusUnprocessableEntity, s.post("/"+name, "k", "order=18&cents=100", form).StatusCode, name)
	}
}

// The policy of a request by its body.
func TestEachByTheBody(t *testing.T) {
	t.Parallel()
	var reported []int
	cents := func(r *http.Request) int {
		var p struct{ Cents int }
		require.NoError(t, json.NewDecoder(r.Body).Decode(&p))
		return p.Cents
	}
	s := shared(t).instance(nil, nil).serve(&idemhttp.Options{
		Each: func(r *http.Request) []idempotency.Option {
			if cents(r) > 1000 {
				return []idempotency.Option{idempotency.OnLost(idempotency.Refuse)}
			}
			return nil
		},
		ReportError: func(r *http.Request, _ error) { reported = append(reported, cents(r)) },
		OnProblem: func(w http.ResponseWriter, r *http.Request, p idemhttp.Problem) {
			w.WriteHeader(p.Status)
			_, _ = fmt.Fprint(w, cents(r))
		},
	}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) })
	const body = `{"cents":100000}`
	require.Equal(t, http.StatusGatewayTimeout, s.post("/", "k", body).StatusCode)
	again := s.post("/", "k", body)
	require.Equal(t, http.StatusConflict, again.StatusCode)
	require.Equal(t, "100000", again.body)
	require.Contains(t, reported, 100000)
	require.EqualValues(t, 1, s.calls.Load())
}
