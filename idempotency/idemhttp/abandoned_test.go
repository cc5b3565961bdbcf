package idemhttp_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// A446: a recoverer behind the Middleware said Abandon of a handler that had panicked in the middle of a 201: its client got
// the 201, with half a body of that Content-Length, and the request executed again. No client gets a whole response below
// 400 of an attempt that counts as lost, whether OnStatus or Decide has said so.
func TestNoSuccessOfALostAttempt(t *testing.T) {
	t.Parallel()
	f := shared(t)
	var processes []instance
	for _, policy := range []idempotency.LostPolicy{idempotency.TakeOver, idempotency.Refuse} {
		processes = append(processes, f.instance(nil, &idempotency.Options{SingleTenant: true, OnLost: policy}))
	}
	abandon := func(r *http.Request) { idemhttp.Decide(r.Context(), idempotency.Abandon) }
	says := func(a idempotency.Action) func(int) idempotency.Action {
		return func(int) idempotency.Action { return a }
	}
	for name, c := range map[string]struct {
		on     func(int) idempotency.Action
		ends   func(w http.ResponseWriter, r *http.Request) // after half a body
		kind   string                                       // of the request
		silent bool                                         // nothing is written before
		lost   [2]bool                                      // under TakeOver and Refuse
	}{
		"a recoverer says Abandon":           {nil, func(_ http.ResponseWriter, r *http.Request) { abandon(r) }, "", false, [2]bool{true, true}},
		"a recoverer says Abandon, and 500":  {nil, func(w http.ResponseWriter, r *http.Request) { abandon(r); http.Error(w, "boom", 500) }, "", false, [2]bool{true, true}},
		"a recoverer answers 500":            {nil, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "boom", 500) }, "", false, [2]bool{true, true}},
		"OnStatus says Abandon":              {says(idempotency.Abandon), func(http.ResponseWriter, *http.Request) {}, "", false, [2]bool{true, true}},
		"OnStatus says Forget":               {says(idempotency.Forget), func(http.ResponseWriter, *http.Request) {}, "", false, [2]bool{false, true}},
		"nothing is written, and Abandon":    {nil, func(_ http.ResponseWriter, r *http.Request) { abandon(r) }, "", true, [2]bool{true, true}},
		"nothing is written to a call":       {nil, func(http.ResponseWriter, *http.Request) {}, "application/proto", true, [2]bool{true, true}},
		"nothing is written, and no Abandon": {nil, func(http.ResponseWriter, *http.Request) {}, "", true, [2]bool{false, false}},
	} {
		for n, in := range processes {
			for _, flushed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d, flushed %v", name, n, flushed), func(t *testing.T) {
					t.Parallel()
					s := in.serve(&idemhttp.Options{OnStatus: c.on}, func(w http.ResponseWriter, r *http.Request) {
						if !c.silent {
							w.WriteHeader(http.StatusCreated)
							_, _ = io.WriteString(w, `{"paid":`)
							if flushed {
								require.NoError(t, http.NewResponseController(w).Flush())
							}
						}
						c.ends(w, r)
					})
					path := "/" + strings.NewReplacer(" ", "-", ",", "").Replace(fmt.Sprint(name, n, flushed))
					re, err := s.send(s.request(path, "k", "", header("Content-Type", c.kind)))
					require.Equal(t, c.lost[n], err != nil || re.StatusCode >= 400, "%v %+v", err, re)
					require.NotContains(t, re.body, `{"paid":boom`)
				})
			}
		}
	}
}

// A447: a handler said Remember, and panicked in the middle of its response: the text of a recoverer was recorded and
// replayed within the success. What comes after the second status is no part of the first response. If that is whole by
// its Content-Length, it is the outcome; otherwise the 500 is, if nothing was sent before. The client got that 500, and its
// duplicates a 201 without a body.
func TestFailureOnTopOfWhatIsRemembered(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	for _, flushed := range []bool{false, true} {
		for _, length := range []string{"", "10"} {
			t.Run(fmt.Sprint(flushed, length), func(t *testing.T) {
				t.Parallel()
				own := f.Root + "own" + fmt.Sprint(flushed, length)
				s := in.serve(nil, func(w http.ResponseWriter, r *http.Request) {
					a, _ := idempotency.FromContext(r.Context())
					a.Attach(nil, clientv3.OpPut(own, "written"))
					idemhttp.Decide(r.Context(), idempotency.Remember)
					w.Header().Set("Location", "/payments/1")
					if length != "" {
						w.Header().Set("Content-Length", length)
					}
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, `{"paid":1}`)
					if flushed {
						require.NoError(t, http.NewResponseController(w).Flush())
					}
					w.Header().Set("Content-Length", "5")
					http.Error(w, "boom", http.StatusInternalServerError) // as a recoverer
					require.NoError(t, http.NewResponseController(w).Flush())
				})
				path := fmt.Sprintf("/%v%s", flushed, length)
				first, err := s.send(s.request(path, "k", ""))
				again := s.post(path, "k", "")
				require.True(t, again.replayed())
				require.Equal(t, flushed || length != "", again.StatusCode == http.StatusCreated)
				require.Equal(t, "/payments/1", again.Header.Get("Location"))
				require.EqualValues(t, 1, s.calls.Load())
				there, bad := in.client.Get(ctxT(t), own)
				require.NoError(t, bad)
				require.Equal(t, length != "", len(there.Kvs) == 1)
				switch {
				case length != "":
					require.NoError(t, err)
					require.Equal(t, []any{201, `{"paid":1}`, `{"paid":1}`}, []any{first.StatusCode, first.body, again.body})
					require.Empty(t, again.Header.Get("Idempotency-Body-Omitted"))
					return
				case flushed:
					require.Error(t, err)
				default:
					require.NoError(t, err)
					for _, re := range []reply{first, again} {
						require.Equal(t, []any{500, "boom\n", "text/plain; charset=utf-8"}, []any{re.StatusCode, re.body, re.Header.Get("Content-Type")})
					}
					require.Empty(t, again.Header.Get("Idempotency-Body-Omitted"))
					return
				}
				require.NotContains(t, first.body+again.body, `}boom`)
				require.Equal(t, []string{"true", ""}, []string{again.Header.Get("Idempotency-Body-Omitted"), again.body})
			})
		}
	}
}

// A701: under Refuse, a response below 400 of an abandoned attempt was withheld with "in progress", retryable after a second,
// although only an operator changes its outcome. The first answer is that of its duplicates: unknown, with the reference.
func TestWithheldResponseIsUnknown(t *testing.T) {
	t.Parallel()
	for policy, code := range map[idempotency.LostPolicy]idemhttp.Code{idempotency.Refuse: idemhttp.CodeUnknown, idempotency.TakeOver: idemhttp.CodeInProgress} {
		in := shared(t).instance(nil, &idempotency.Options{SingleTenant: true, OnLost: policy})
		says := map[string]struct {
			on   func(int) idempotency.Action
			note bool
		}{"/decides": {nil, true}, "/on-status": {func(int) idempotency.Action { return idempotency.Abandon }, false}}
		for path, c := range says {
			s := in.serve(&idemhttp.Options{
				OnStatus: c.on, ShowNote: c.note,
				Note: func(*http.Request, []byte) string { return "order 7" },
			}, func(w http.ResponseWriter, r *http.Request) {
				if path == "/decides" {
					idemhttp.Decide(r.Context(), idempotency.Abandon)
				}
				paid(w, r)
			})
			first := s.post(path, "k", "body")
			p := first.problem(t)
			require.Equal(t, code, p.Code)
			require.Empty(t, first.Header.Get("Location"))
			if policy == idempotency.TakeOver {
				require.True(t, p.Retryable)
				require.Equal(t, "1", first.Header.Get("Retry-After"))
				continue
			}
			again := s.post(path, "k", "body")
			require.Equal(t, again.problem(t), p)
			require.NotEmpty(t, p.Ref)
			require.Equal(t, c.note, p.Note == "order 7")
			require.False(t, p.Retryable)
			for _, re := range []reply{first, again} {
				require.Equal(t, []string{"unknown", ""}, []string{re.Header.Get("Idempotency-Outcome"), re.Header.Get("Retry-After")})
			}
			require.EqualValues(t, 1, s.calls.Load())
		}
	}
}
