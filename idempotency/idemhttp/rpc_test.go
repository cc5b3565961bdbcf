package idemhttp

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
	"github.com/etcdkit/etcdkit/internal/forms"
)

// Q4, Q5: a call of gRPC, gRPC-Web or Connect has the end that its code stands for, wherever its protocol
// puts the code.
func TestEndsOfRPCs(t *testing.T) {
	t.Parallel()
	const grpc, web, text, stream, json = "application/grpc", "application/grpc-web+proto", "application/grpc-web-text", "application/connect+json", "application/json"
	trailer := func(name, value string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.Header().Set(http.TrailerPrefix+name, value) }
	}
	head := func(name, value string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.Header().Set(name, value) }
	}
	body := func(b string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { _, _ = io.WriteString(w, b) }
	}
	status := func(s int) func(http.ResponseWriter) { return func(w http.ResponseWriter) { w.WriteHeader(s) } }
	unknown := rpc.Answer(middleware.Refusal{Reason: middleware.Unknown}, "")
	details, reused := base64.StdEncoding.EncodeToString(encoded(unknown)), base64.RawStdEncoding.EncodeToString(encoded(rpc.Answer(middleware.Refusal{Reason: middleware.Reused}, "")))
	type steps []func(http.ResponseWriter)
	for _, c := range []struct {
		name, kind string
		do         steps
		end        middleware.End
		status     int
	}{
		{"success", grpc, steps{body("m"), trailer("Grpc-Status", "0")}, middleware.Success, 200},
		{"unavailable", grpc, steps{body("m"), trailer("Grpc-Status", "14")}, middleware.Failure, 503},
		{"announced", grpc, steps{head("Trailer", "Grpc-Status, Grpc-Message"), body("m"), head("Grpc-Status", "5")}, middleware.Final, 404},
		{"in the headers", grpc, steps{head("Grpc-Status", "10")}, middleware.Interrupted, 409},
		{"exists", "application/grpc+proto", steps{trailer("Grpc-Status", "6")}, middleware.Final, 409},
		{"in lower case", grpc, steps{trailer("grpc-status", "8")}, middleware.Early, 429},
		{"an unknown code", grpc, steps{trailer("Grpc-Status", "99")}, middleware.Failure, 500},
		{"no number", grpc, steps{trailer("Grpc-Status", "ok")}, middleware.Failure, 500},
		{"no status", grpc, steps{body("m")}, middleware.Broken, 500},
		{"409 to be repeated", "text/plain", steps{head("Retry-After", "1"), status(409)}, middleware.Interrupted, 409},
		// A client of RPC reads UNKNOWN from a 409 without a code: that the thing exists already is ALREADY_EXISTS.
		{"409", "text/plain", steps{status(409)}, middleware.Failure, 500},
		{"400", "text/plain", steps{status(400)}, middleware.Failure, 500},
		{"415", "text/plain", steps{status(415)}, middleware.Failure, 500},
		{"429", "text/plain", steps{status(429)}, middleware.Failure, 503},
		{"401", "text/plain", steps{status(401)}, middleware.Early, 401},
		{"202", "text/plain", steps{status(202)}, middleware.Failure, 500},
		{"a proxy's 503", grpc, steps{status(503)}, middleware.Failure, 503},
		{"in the headers, of a body", grpc, steps{head("Grpc-Status", "0"), body("m")}, middleware.Broken, 500},
		{"in both", grpc, steps{head("Trailer", "Grpc-Status"), head("Grpc-Status", "0"), body("m"), head("Grpc-Status", "14")}, middleware.Failure, 503},
		{"in both, no body", grpc, steps{head("Trailer", "Grpc-Status"), head("Grpc-Status", "0"), status(200), head("Grpc-Status", "14")}, middleware.Failure, 500},
		{"in both, the same", grpc, steps{head("Grpc-Status", "5"), trailer("Grpc-Status", "5")}, middleware.Final, 404},
		{"twice", grpc, steps{body("m"), func(w http.ResponseWriter) { w.Header()[http.TrailerPrefix+"Grpc-Status"] = []string{"0", "14"} }}, middleware.Failure, 500},
		{"under two names", grpc, steps{body("m"), trailer("Grpc-Status", "0"), trailer("grpc-status", "14")}, middleware.Failure, 500},
		{"announced, and not set", grpc, steps{head("Trailer", "Grpc-Status"), body("m")}, middleware.Broken, 500},
		{"empty", grpc, steps{trailer("Grpc-Status", "")}, middleware.Failure, 500},
		{"another status", grpc, steps{status(202), trailer("Grpc-Status", "0")}, middleware.Failure, 500},
		{"a router's 404", grpc, steps{status(404)}, middleware.Failure, 501},
		{"a router's 404", "text/plain", steps{status(404)}, middleware.Failure, 501},
		{"a router's 404", json, steps{status(404), body(`{}`)}, middleware.Failure, 501},
		{"not found", json, steps{status(404), body(`{"code":"not_found"}`)}, middleware.Final, 404},
		{"parameters", "Application/GRPC+proto; a=b; a=c", steps{body("m"), trailer("Grpc-Status", "14")}, middleware.Failure, 503},
		{"unknown, passed on", grpc, steps{body("m"), trailer("Grpc-Status", "9"), trailer("Grpc-Status-Details-Bin", details)}, middleware.Interrupted, 400},
		{"reused, passed on", grpc, steps{body("m"), trailer("Grpc-Status", "9"), trailer("Grpc-Status-Details-Bin", reused)}, middleware.Final, 400},
		{"unknown, passed on", web, steps{body(string(frame(flagWebEnd, "grpc-status: 9\r\ngrpc-status-details-bin: "+details+"\r\n")))}, middleware.Interrupted, 400},
		{"unknown, passed on", stream, steps{body(string(frame(flagConnectEnd, `{"error":`+string(forms.ConnectError(unknown.Proto()))+`}`)))}, middleware.Interrupted, 400},
		{"unknown, passed on", json, steps{status(400), body(string(forms.ConnectError(unknown.Proto())))}, middleware.Interrupted, 400},
		{"unknown, passed on", "text/plain", steps{head(outcomeHeader, "unknown"), status(409)}, middleware.Interrupted, 409},
		{"another outcome", "text/plain", steps{head(outcomeHeader, "failed"), status(409)}, middleware.Failure, 500},
		{"another kind", "application/grpcfoo", steps{body("m")}, middleware.Success, 200},

		{"success", web, steps{body(string(frame(0, "m"))), body(string(frame(flagWebEnd, "grpc-status: 0\r\n")))}, middleware.Success, 200},
		{"unavailable", web, steps{body(string(frame(flagWebEnd, "grpc-message: down\r\ngrpc-status:14\r\n")))}, middleware.Failure, 503},
		{"in the headers", web, steps{head("Grpc-Status", "7")}, middleware.Early, 403},
		{"no last frame", web, steps{body(string(frame(0, "m")))}, middleware.Broken, 500},
		{"in the headers, of a body", web, steps{head("Grpc-Status", "0"), body(string(frame(0, "m")))}, middleware.Broken, 500},
		{"in both", web, steps{head("Grpc-Status", "0"), body(string(frame(flagWebEnd, "grpc-status: 14\r\n")))}, middleware.Failure, 503},
		{"twice", web, steps{body(string(frame(flagWebEnd, "grpc-status: 0\r\ngrpc-status: 14\r\n")))}, middleware.Failure, 500},
		{"a second last frame", web, steps{body(string(append(frame(flagWebEnd, "grpc-status: 14\r\n"), frame(flagWebEnd, "grpc-status: 0\r\n")...)))}, middleware.Failure, 503},
		{"no status in it", web, steps{body(string(frame(flagWebEnd, "x: y\r\n")))}, middleware.Broken, 500},
		{"compressed", web, steps{head("Grpc-Encoding", "gzip"), body(string(frame(flagWebEnd|flagCompressed, zipped(t, "grpc-status: 5\r\n"))))}, middleware.Final, 404},
		{"compressed by br", web, steps{head("Grpc-Encoding", "br"), body(string(frame(flagWebEnd|flagCompressed, "?")))}, middleware.Broken, 500},
		{"compressed, too long", web, steps{head("Grpc-Encoding", "gzip"), body(string(frame(flagWebEnd|flagCompressed, zipped(t, "x: "+strings.Repeat("x", maxLast)+"\r\ngrpc-status: 0\r\n"))))}, middleware.Broken, 500},
		{"too long", web, steps{body(string(frame(flagWebEnd, "grpc-status: 0\r\nx: "+strings.Repeat("x", maxLast))))}, middleware.Broken, 500},
		{"in base64", text, steps{body(base64.StdEncoding.EncodeToString(frame(flagWebEnd, "grpc-status: 14\r\n")[:20]))}, middleware.Broken, 500},
		{"in base64", text, steps{body(base64.StdEncoding.EncodeToString(frame(flagWebEnd, "grpc-status: 14\r\n")))}, middleware.Failure, 503},

		{"success", stream, steps{body(string(frame(0, "{}"))), body(string(frame(flagConnectEnd, `{"metadata":{}}`)))}, middleware.Success, 200},
		{"unavailable", stream, steps{body(string(frame(flagConnectEnd, `{"error":{"code":"unavailable"}}`)))}, middleware.Failure, 503},
		{"no code", stream, steps{body(string(frame(flagConnectEnd, `{"error":{}}`)))}, middleware.Failure, 500},
		{"no JSON", stream, steps{body(string(frame(flagConnectEnd, ``)))}, middleware.Failure, 500},
		{"compressed by br", stream, steps{head("Connect-Content-Encoding", "br"), body(string(frame(flagConnectEnd|flagCompressed, "?")))}, middleware.Broken, 500},
		{"no last message", stream, steps{body(string(frame(0, "{}")))}, middleware.Broken, 500},

		{"success", json, steps{body(`{"code":"aborted"}`)}, middleware.Success, 200},
		{"aborted", json, steps{status(409), body(`{"code":"aborted"}`)}, middleware.Interrupted, 409},
		{"exists", json, steps{status(409), body(`{"code":"already_exists"}`)}, middleware.Final, 409},
		{"canceled", json, steps{status(499), body(`{"code":"canceled"}`)}, middleware.Interrupted, 499},
		{"aborted, compressed", json, steps{head("Content-Encoding", "gzip"), status(409), body(zipped(t, `{"code":"aborted"}`))}, middleware.Interrupted, 409},
		{"not Connect's", json, steps{status(409), body(`{"code":"E17"}`)}, middleware.Failure, 500},
		{"no code", json, steps{status(409), body(`{}`)}, middleware.Failure, 500},

		{"500 after the status", "text/plain", steps{status(201), body("half"), status(500)}, middleware.Broken, 201},
		{"400 after the status", "text/plain", steps{status(200), body("half"), status(400)}, middleware.Success, 200},
		{"500 after 503", "text/plain", steps{status(503), status(500)}, middleware.Failure, 503},
	} {
		name := c.kind + ": " + c.name
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Connect-Protocol-Version", "1")
		rec := record(httptest.NewRecorder(), r, 1<<10, nil)
		rec.Header().Set("Content-Type", c.kind)
		for _, step := range c.do {
			step(rec)
		}
		rec.end(&config{})
		end := rec.judge()
		require.Equal(t, c.end, end.kind, "%s: %+v", name, end)
		require.Equal(t, c.status, end.status, name)
		require.NotEmpty(t, end.text, name)
		if c.name == "compressed, too long" || c.name == "too long" { // the client may read a success there (A648)
			require.Error(t, rec.unread, name)
		}
	}
}

// The status that OnStatus and Decide see is the one that stands for the code; and a Forget without it is
// void for a failure that comes later in a stream.
func TestDecideForAnRPC(t *testing.T) {
	t.Parallel()
	var seen int
	c := &config{Options: Options{OnStatus: func(s int) idempotency.Action { seen = s; return idempotency.DefaultAction }}}
	for _, x := range []struct {
		name string
		say  func(ctx context.Context)
		want idempotency.Action
		own  bool
	}{
		{"nothing", func(context.Context) {}, idempotency.Forget, false},
		{"Forget", func(ctx context.Context) { Decide(ctx, idempotency.Forget) }, idempotency.Forget, false},
		{"Forget for it", func(ctx context.Context) { Decide(ctx, idempotency.Forget, 503) }, idempotency.Forget, true},
		{"Remember", func(ctx context.Context) { Decide(ctx, idempotency.Remember) }, idempotency.Remember, true},
	} {
		v := &visit{}
		rec := record(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil), 1<<10, nil)
		x.say(context.WithValue(context.Background(), visitKey{}, v))
		rec.Header().Set("Content-Type", "application/grpc")
		_, _ = rec.Write(frame(0, "m"))
		rec.Header().Set(http.TrailerPrefix+"Grpc-Status", "14")
		seen = 0
		res := v.decide(c, rec, rec.end(c))
		require.Equal(t, x.want, res.Action, x.name)
		require.Equal(t, x.own, res.Own, x.name)
		require.False(t, Decide(context.WithValue(context.Background(), visitKey{}, v), idempotency.Remember), "too late")
		require.True(t, res.Failed, x.name)
		if !x.own {
			require.Equal(t, 503, seen, x.name)
		}
	}
}

// V2: a call is not ended by a response that was never written: a recoverer that writes nothing makes 200 of a
// panic, with the type that connect-go sets before it calls the function. An empty message is written.
func TestAnswerWithoutAType(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]middleware.End{
		"application/grpc": middleware.Broken, "application/grpc-web-text": middleware.Broken, "application/connect+json": middleware.Broken,
		"application/proto": middleware.Broken, "application/json": middleware.Success,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Content-Type", kind)
		for _, set := range []string{"", kind, "application/json; charset=utf-8"} {
			rec := record(httptest.NewRecorder(), r, 1<<10, nil)
			if set != "" {
				rec.Header().Set("Content-Type", set)
			}
			rec.end(&config{})
			require.Equal(t, want, rec.judge().kind, "%s: %s", kind, set)
		}
	}
	const registered = "/grpc.health.v1.Health/Check"
	r := httptest.NewRequest(http.MethodPost, registered, nil)
	r.Header.Set("Content-Type", "application/json")
	rec := record(httptest.NewRecorder(), r, 1<<10, nil)
	rec.end(&config{})
	require.Equal(t, middleware.Broken, rec.judge().kind, "a call, by its path")

	r.Header.Set("Content-Type", "application/proto")
	rec = record(httptest.NewRecorder(), r, 1<<10, nil)
	rec.Header().Set("Content-Type", "application/proto")
	_, _ = rec.Write(nil)
	rec.end(&config{})
	require.Equal(t, middleware.Success, rec.judge().kind, "an empty message")
}

// What OnStatus says of a status does not count for a response that broke off, nor for a connection that
// was handed over. A client that has left a large response is no reason to take it for broken off.
func TestEndsWithoutOnStatus(t *testing.T) {
	t.Parallel()
	says := func(a idempotency.Action) *config {
		return &config{Options: Options{OnStatus: func(int) idempotency.Action { return a }}}
	}
	fresh := func() (*visit, *recorder, func()) {
		ctx, leave := context.WithCancel(t.Context())
		v := &visit{}
		return v, record(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil), 1<<10, nil), leave
	}
	v, rec, leave := fresh()
	defer leave()
	rec.Header().Set("Content-Length", "10")
	_, _ = rec.Write([]byte("half"))
	c := says(idempotency.Remember)
	require.Equal(t, idempotency.Abandon, v.decide(c, rec, rec.end(c)).Action)

	v, rec, leave = fresh()
	defer leave()
	rec.hijacked = true
	c = says(idempotency.Forget)
	require.Equal(t, idempotency.Remember, v.decide(c, rec, rec.end(c)).Action)

	v, rec, leave = fresh()
	_, _ = rec.Write(make([]byte, 2<<10))
	leave()
	c = says(idempotency.DefaultAction)
	require.Equal(t, idempotency.Remember, v.decide(c, rec, rec.end(c)).Action)
	rec.ended = false
	rec.WriteHeader(http.StatusInternalServerError) // as of a recoverer: it did not stop because of the client
	require.Equal(t, idempotency.Abandon, v.decide(c, rec, rec.end(c)).Action)
}

// A client that has left is no reason to take a stream for broken off.
func TestStreamWhoseReaderHasLeft(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	v := &visit{}
	rec := record(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil), 1<<10, nil)
	rec.Header().Set("Content-Type", "application/connect+proto")
	_, _ = rec.Write(frame(0, "m"))
	leave()
	require.Equal(t, middleware.Interrupted, rec.judge().kind)

	// Nor is it the word of a handler that has said Forget before it broke off.
	Decide(context.WithValue(ctx, visitKey{}, v), idempotency.Forget)
	require.False(t, v.decide(&config{Options: Options{OnStatus: func(int) idempotency.Action { return 0 }}}, rec, &Response{}).Own)
}

// A289: a gateway makes an error of HTTP of what idemgrpc answers: 400 of an unknown outcome, and 409 without Retry-After of
// a call in progress. Both were recorded as final by a Middleware in front of it. Another API's errors are its own.
func TestErrorsOfAGatewayThatCanChange(t *testing.T) {
	t.Parallel()
	end := func(status int, body string) middleware.End {
		rec := record(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/pay", nil), 1<<10, nil)
		rec.Header().Set("Content-Type", "application/json")
		rec.WriteHeader(status)
		_, _ = rec.Write([]byte(body))
		rec.end(&config{})
		return rec.judge().kind
	}
	for reason, want := range map[middleware.Reason]middleware.End{
		middleware.Unknown: middleware.Interrupted, middleware.InProgress: middleware.Interrupted, middleware.Conflict: middleware.Interrupted,
		middleware.Reused: middleware.Final, middleware.Failed: middleware.Final, middleware.NotKept: middleware.Final,
	} {
		body, err := protojson.Marshal(rpc.Answer(middleware.Refusal{Reason: reason, RetryAfter: 1}, "").Proto())
		require.NoError(t, err)
		for _, status := range []int{http.StatusBadRequest, http.StatusConflict} {
			require.Equal(t, want, end(status, string(body)), "%s, %d", reason, status)
		}
	}
	// A583: ABORTED of the service itself is a conflict with another call, whatever its details: it was recorded as final.
	require.Equal(t, middleware.Interrupted, end(409, `{"code":10,"message":"","details":[{"domain":"shop.example","reason":"UNKNOWN"}]}`))
	require.Equal(t, middleware.Interrupted, end(409, `{"details":[], "message":"no", "code":10}`))
	require.Equal(t, middleware.Interrupted, end(409, `{"code":10,"message":"no"}`)) // of a gateway without EmitUnpopulated
	require.Equal(t, middleware.Final, end(409, `{"code":6,"message":"no","details":[{"domain":"shop.example","reason":"UNKNOWN"}]}`))
	require.Equal(t, middleware.Final, end(409, `{"code":"10","message":"no","details":[]}`))
	require.Equal(t, middleware.Final, end(422, `{"code":10,"message":"no","details":[]}`))
	// A647: another API's number was taken for it, and its final 409 executed again.
	for _, other := range []string{
		`{"code":10}`, `{"code":10,"error":"declined"}`, `{"code":10,"message":"no","details":null}`,
		`{"code":10,"message":"no","details":"see the log"}`, `{"code":10,"message":{},"details":[]}`, `{"Code":10,"message":"no","details":[]}`,
		`{"code":10,"message":"no","details":[],"error":"no"}`, `{"code":10,"message":"` + strings.Repeat("x", 2<<10) + `","details":[]}`,
	} {
		require.Equal(t, middleware.Final, end(409, other), other)
	}
	require.Equal(t, middleware.Final, end(409, `{"note":"idempotency.etcdkit UNKNOWN"}`))
}

// V3: JSON of Connect without the optional Connect-Protocol-Version, as curl and fetch send it, was not known for a
// call: its aborted was replayed, and its deadline ended the attempt.
func TestConnectWithoutItsVersion(t *testing.T) {
	t.Parallel()
	end := func(status int, kind, body string) middleware.End {
		r := httptest.NewRequest(http.MethodPost, "/shop.v1.Shop/Pay", nil)
		r.Header.Set("Content-Type", "application/json")
		rec := record(httptest.NewRecorder(), r, 1<<10, nil)
		rec.Header().Set("Content-Type", kind)
		rec.WriteHeader(status)
		_, _ = rec.Write([]byte(body))
		rec.end(&config{})
		return rec.judge().kind
	}
	const json = "application/json"
	require.Equal(t, middleware.Interrupted, end(409, json, `{"code":"aborted"}`))
	require.Equal(t, middleware.Final, end(409, json, `{"code":"already_exists"}`))
	require.Equal(t, middleware.Final, end(409, "text/plain", `{"code":"aborted"}`))
	require.Equal(t, middleware.Final, end(402, json, `{"code":"card_declined"}`), "an API of another kind")
	require.Equal(t, middleware.Success, end(200, json, `{"code":"aborted"}`))
	for code, c := range forms.Codes {
		want := middleware.EndOfCode(uint32(code)).Action()
		require.Equal(t, want, end(c.Status, json, `{"code":"`+c.Name+`"}`).Action(), c.Name)
	}

	r := httptest.NewRequest(http.MethodPost, "/shop.v1.Shop/Pay", nil)
	r.Header.Set("Content-Type", json)
	r.Header.Set("Connect-Timeout-Ms", "100")
	require.Equal(t, connectUnary, protocolOfCall(r))
	require.Empty(t, forHandler(r).Header.Get("Connect-Timeout-Ms"))
}

// encoded returns a status as Grpc-Status-Details-Bin has it, before base64.
func encoded(st *rpc.Status) []byte {
	b, err := proto.Marshal(st.Proto())
	if err != nil {
		panic(err)
	}
	return b
}
