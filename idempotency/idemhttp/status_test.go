package idemhttp

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/internal/forms"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// got is an error as a client of its protocol reads it.
type got struct {
	*status.Status
	http  int
	media string
}

// ofGRPC reads the fields of gRPC.
func ofGRPC(t *testing.T, h http.Header) *status.Status {
	t.Helper()
	b, err := base64.RawStdEncoding.DecodeString(h.Get("Grpc-Status-Details-Bin"))
	require.NoError(t, err)
	st := new(spb.Status)
	require.NoError(t, proto.Unmarshal(b, st))
	text, err := url.PathUnescape(h.Get("Grpc-Message"))
	require.NoError(t, err)
	require.Equal(t, st.GetMessage(), text)
	var code codes.Code
	require.NoError(t, code.UnmarshalJSON([]byte(h.Get("Grpc-Status"))))
	require.Equal(t, code, codes.Code(st.GetCode()))
	return status.FromProto(st)
}

// ofConnect reads an error of Connect.
func ofConnect(t *testing.T, text []byte) *status.Status {
	t.Helper()
	var e struct {
		Code, Message string
		Details       []struct{ Type, Value string }
	}
	require.NoError(t, json.Unmarshal(text, &e))
	st := &spb.Status{Message: e.Message}
	for n, c := range forms.Codes {
		if c.Name == e.Code {
			st.Code = int32(n)
		}
	}
	for _, d := range e.Details {
		b, err := base64.RawStdEncoding.DecodeString(d.Value)
		require.NoError(t, err)
		st.Details = append(st.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type, Value: b})
	}
	return status.FromProto(st)
}

// answerTo returns the answer to a call.
func answerTo(t *testing.T, c *config, r *http.Request, p Problem, after time.Duration) got {
	t.Helper()
	w := httptest.NewRecorder()
	c.answer(w, r, p, after)
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	g := got{http: w.Code, media: w.Header().Get("Content-Type")}
	switch by := protocolOfCall(r); by {
	case grpcTrailers:
		require.Empty(t, w.Body.Bytes())
		g.Status = ofGRPC(t, w.Header())
	case grpcWeb, grpcWebText, connectStream:
		f := framesOf(by)
		f.write(w.Body.Bytes())
		require.NoError(t, f.end(w.Header()))
		if by != connectStream {
			g.Status = ofGRPC(t, canonical(fieldsOf(f.last)))
			break
		}
		var last struct{ Error json.RawMessage }
		require.NoError(t, json.Unmarshal(f.last, &last))
		g.Status = ofConnect(t, last.Error)
	default:
		g.Status = ofConnect(t, w.Body.Bytes())
	}
	return g
}

func canonical(h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		out[http.CanonicalHeaderKey(name)] = values
	}
	return out
}

// Q9: the Middleware's own answer to a call of gRPC, gRPC-Web or Connect is an error of its protocol, with
// the code, reason and details that the call gets behind idemgrpc (Q9 in internal/proof/tested-failures.md).
func TestProblemsForRPCs(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, media string
		http        func(code int) int
		want        string
	}{
		{"gRPC", "Application/gRPC+proto; x=y", nil, "application/grpc+proto"},
		{"gRPC-Web", "application/grpc-web", nil, "application/grpc-web"},
		{"gRPC-Web in base64", "application/grpc-web-text+proto", nil, "application/grpc-web-text+proto"},
		{"a stream of Connect", "application/connect+json", nil, "application/connect+json"},
		{"Connect", "application/proto", func(code int) int { return forms.Codes[code].Status }, "application/json"},
		{"Connect in JSON", "application/json", func(code int) int { return forms.Codes[code].Status }, "application/json"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/pay.v1.Payments/Pay", nil)
		r.Header.Set("Content-Type", x.media)
		r.Header.Set("Connect-Protocol-Version", "1")
		c := &config{Options: Options{Header: defaultHeader}}
		for code := range problems {
			g := answerTo(t, c, r, Problem{Code: code, Ref: "abc", Note: "order 17", Detail: "100 % Unicode: €"}, 1500*time.Millisecond)
			want := http.StatusOK
			if x.http != nil {
				want = x.http(int(g.Code()))
			}
			require.Equal(t, want, g.http, "%s: %s", x.name, code)
			require.Equal(t, x.want, g.media, x.name)
			require.NotContains(t, []codes.Code{codes.OK, codes.Unknown}, g.Code(), "%s: %s", x.name, code)
			require.Len(t, g.Details(), 2)
			info, ok := g.Details()[0].(*errdetails.ErrorInfo)
			require.True(t, ok)
			require.Equal(t, "idempotency.etcdkit", info.GetDomain())
			require.NotEmpty(t, info.GetReason())
			require.Equal(t, map[string]string{"ref": "abc", "note": "order 17"}, info.GetMetadata())
			retry, ok := g.Details()[1].(*errdetails.RetryInfo)
			require.True(t, ok)
			require.Equal(t, 1500*time.Millisecond, retry.GetRetryDelay().AsDuration())
			if code != CodeMissing {
				require.Contains(t, g.Message(), "100 % Unicode: €")
			}
		}
		g := answerTo(t, c, r, Problem{Code: CodeMissing}, 0)
		require.Contains(t, g.Message(), defaultHeader)
		require.Len(t, g.Details(), 1)
		require.Equal(t, codes.InvalidArgument, g.Code())
	}
}

// Which requests are calls.
func TestProtocolOfCall(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		method, target, media, version string
		want                           protocol
	}{
		{"POST", "/", "application/json", "", plainHTTP},
		{"POST", "/", "application/json", "1", connectUnary},
		{"POST", "/", "application/proto", "", connectUnary},
		{"POST", "/", "application/grpc", "", grpcTrailers},
		{"POST", "/", "application/grpc+json", "", grpcTrailers},
		{"POST", "/", "application/grpc-web+proto", "", grpcWeb},
		{"POST", "/", "application/grpc-web-text", "", grpcWebText},
		{"POST", "/", "application/connect+proto", "1", connectStream},
		{"POST", "/", "application/grpcfoo", "", plainHTTP},
		{"POST", "/?connect=v1", "text/plain", "", plainHTTP},
		{"GET", "/?connect=v1&encoding=json", "", "", connectUnary},
		{"GET", "/", "", "", plainHTTP},
	} {
		r := httptest.NewRequest(x.method, x.target, nil)
		r.Header.Set("Content-Type", x.media)
		if x.version != "" {
			r.Header.Set("Connect-Protocol-Version", x.version)
		}
		require.Equal(t, x.want, protocolOfCall(r), "%+v", x)
	}
}

// OnProblem writes the answers to calls, too, if it is set.
func TestOnProblemForAnRPC(t *testing.T) {
	t.Parallel()
	var seen Problem
	c := &config{Options: Options{OnProblem: func(w http.ResponseWriter, _ *http.Request, p Problem) {
		seen = p
		w.WriteHeader(http.StatusTeapot)
	}}}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Content-Type", "application/grpc")
	w := httptest.NewRecorder()
	c.answer(w, r, Problem{Code: CodeReused}, 0)
	require.Equal(t, http.StatusTeapot, w.Code)
	require.Equal(t, CodeReused, seen.Code)
	require.Empty(t, w.Header().Get("Grpc-Status"))
}
