package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemgrpc"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// Q4, Q13: whatever the protocol, the codec and the kind of a call: it is recorded if idemgrpc would record it,
// and what a failing attempt has attached is not written.
func TestEndsOfConnectCalls(t *testing.T) {
	t.Parallel()
	for name, dialect := range dialects {
		for _, procedure := range []string{payUnary, payServer, payClient, payBidi} {
			t.Run(name+procedure, func(t *testing.T) {
				t.Parallel()
				s := serveConnect(t, &idemhttp.Options{Each: func(r *http.Request) []idempotency.Option {
					if r.Header.Get("Refuse") != "" {
						return []idempotency.Option{idempotency.OnLost(idempotency.Refuse)}
					}
					return nil
				}})
				for code := connect.Code(0); code <= connect.CodeUnauthenticated; code++ {
					final := idemgrpc.RememberFinal(codes.Code(code)) == idempotency.Remember
					for _, refuse := range []string{"", "true"} {
						key := fmt.Sprint(code, "-", refuse)
						once := func() (int, http.Header, error) {
							return s.call(procedure, key, dialect, "Code", code.String(), "Refuse", refuse)
						}
						s.calls.Store(0)
						n, _, first := once()
						if code == 0 {
							require.NoError(t, first)
						} else {
							require.Equal(t, code, connect.CodeOf(first), first)
							require.Equal(t, "the bank says no", textOf(first))
						}
						require.Equal(t, code == 0, s.written(), code)
						again, header, err := once()
						switch {
						case final && code == 0:
							require.NoError(t, err)
							require.Equal(t, n, again)
							require.Equal(t, "true", header.Get("Idempotent-Replayed"))
							require.EqualValues(t, 1, s.calls.Load())
						case final:
							require.Equal(t, code, connect.CodeOf(err), err)
							require.Equal(t, "the bank says no", textOf(err))
							require.Equal(t, n, again)
							require.EqualValues(t, 1, s.calls.Load(), code)
						case refuse != "":
							why, _ := reason(t, err)
							require.Equal(t, connect.CodeFailedPrecondition, connect.CodeOf(err), err)
							require.Equal(t, idemgrpc.ReasonUnknown, why)
							require.EqualValues(t, 1, s.calls.Load(), code)
						default:
							require.NoError(t, err, code)
							require.EqualValues(t, 2, s.calls.Load(), code)
							require.True(t, s.written(), code)
						}
					}
				}
			})
		}
	}
}

// Q9: the Middleware's own answers arrive in each protocol with the code, the reason and the delay that
// idemgrpc gives to them.
func TestRefusalsForConnectClients(t *testing.T) {
	t.Parallel()
	for name, dialect := range dialects {
		for _, procedure := range []string{payUnary, payServer, payClient, payBidi} {
			t.Run(name+procedure, func(t *testing.T) {
				t.Parallel()
				s := serveConnect(t, &idemhttp.Options{MaxRequest: 4 << 10})
				refused := func(want connect.Code, reasonWanted, key string, headers ...string) time.Duration {
					t.Helper()
					_, _, err := s.call(procedure, key, dialect, headers...)
					why, retry := reason(t, err)
					require.Equal(t, want, connect.CodeOf(err), err)
					require.Equal(t, reasonWanted, why, err)
					require.Contains(t, textOf(err), "idempotency: ")
					return retry
				}
				require.Zero(t, refused(connect.CodeInvalidArgument, idemgrpc.ReasonMissing, ""))
				require.Zero(t, refused(connect.CodeInvalidArgument, idemgrpc.ReasonMalformed, `"open`))
				require.Zero(t, s.calls.Load())

				_, _, err := s.call(procedure, "k", dialect)
				require.NoError(t, err)
				require.Zero(t, refused(connect.CodeFailedPrecondition, idemgrpc.ReasonReused, "k", "Note", "another"))
				_, _, err = s.call(procedure, "large", dialect, "Note", noise(8<<10))
				why, _ := reason(t, err)
				require.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err), err)
				require.Equal(t, "TOO_LARGE", why)

				first := make(chan error, 1)
				go func() { _, _, err := s.call(procedure, "slow", dialect, "Hold", "true"); first <- err }()
				<-s.entered
				require.Positive(t, refused(connect.CodeAborted, idemgrpc.ReasonInProgress, "slow"))
				close(s.leave)
				require.NoError(t, <-first)
			})
		}
	}
}

// Q10: of a response whose body was not kept, a client of RPC gets no empty message: it would take it for the
// outcome.
func TestConnectResponseThatIsNotKept(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Connect", "gRPC", "gRPC-Web"} {
		for _, procedure := range []string{payUnary, payServer, payClient, payBidi} {
			dialect := dialects[name]
			t.Run(name+procedure, func(t *testing.T) {
				t.Parallel()
				s := serveConnect(t, &idemhttp.Options{MaxResponse: 1 << 10})
				note := noise(8 << 10)
				_, _, err := s.call(procedure, "k", dialect, "Note", note)
				require.NoError(t, err)
				n, _, err := s.call(procedure, "k", dialect, "Note", note)
				why, _ := reason(t, err)
				require.Equal(t, connect.CodeFailedPrecondition, connect.CodeOf(err), err)
				require.Equal(t, idemgrpc.ReasonNotKept, why)
				require.Zero(t, n)
				require.EqualValues(t, 1, s.calls.Load())
			})
		}
	}
}

// Q11: a client's deadline does not end the attempt, as it does not behind idemgrpc.
func TestDeadlineOfAConnectClient(t *testing.T) {
	t.Parallel()
	for name, dialect := range dialects {
		for _, procedure := range []string{payUnary, payServer} {
			t.Run(name+procedure, func(t *testing.T) {
				t.Parallel()
				s := serveConnect(t, &idemhttp.Options{Optional: true})
				ctx, cancel := context.WithTimeout(ctxT(t), soon)
				defer cancel()
				clients, _ := ctx.Deadline()
				_, _, err := s.callIn(ctx, procedure, "k", dialect)
				require.NoError(t, err)
				require.Zero(t, *s.deadline.Load())
				_, _, err = s.callIn(ctx, procedure, "", dialect)
				require.NoError(t, err)
				require.WithinDuration(t, clients, *s.deadline.Load(), soon/2, "without a key nothing changes")
			})
		}
	}
}

// A stream in both directions at once cannot be executed once for each key: the handler begins when the client
// has sent all its messages, so a client that waits for an answer first gets none, and nothing has executed.
func TestBidiStreamThatWaitsForAnswers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Connect", "gRPC", "gRPC-Web"} {
		dialect := dialects[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveConnect(t, nil)
			ctx, cancel := context.WithCancel(ctxT(t))
			both := connect.NewClient[structpb.Struct, structpb.Struct](s.Client(), s.URL+payBidi, dialect...).CallBidiStream(ctx)
			both.RequestHeader().Set("Idempotency-Key", "k")
			require.NoError(t, both.Send(new(structpb.Struct)))
			time.AfterFunc(200*time.Millisecond, cancel) // no signal says that nothing happens
			_, err := both.Receive()
			require.Equal(t, connect.CodeCanceled, connect.CodeOf(err))
			require.Zero(t, s.calls.Load())

			_, _, err = s.call(payBidi, "k", dialect)
			require.NoError(t, err, "the key is free")
		})
	}
}

// The status that OnStatus and Decide see of a call is the one that connect gives to the code, whatever the protocol.
func TestStatusesOfConnectCodes(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	s := serveConnect(t, &idemhttp.Options{OnStatus: func(status int) idempotency.Action {
		seen.Store(int64(status))
		return idempotency.DefaultAction
	}})
	for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
		r, err := http.NewRequestWithContext(ctxT(t), http.MethodPost, s.URL+payUnary, strings.NewReader("{}"))
		require.NoError(t, err)
		for name, value := range map[string]string{"Content-Type": "application/json", "Connect-Protocol-Version": "1", "Idempotency-Key": code.String(), "Code": code.String()} {
			r.Header.Set(name, value)
		}
		resp, err := s.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.EqualValues(t, resp.StatusCode, seen.Load(), code)
		for name, dialect := range dialects {
			seen.Store(0)
			_, _, err := s.call(payServer, fmt.Sprintf("%q", name+code.String()), dialect, "Code", code.String())
			require.Equal(t, code, connect.CodeOf(err))
			require.EqualValues(t, resp.StatusCode, seen.Load(), "%s: %s", name, code)
		}
	}
}
