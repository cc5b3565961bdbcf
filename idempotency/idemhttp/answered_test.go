package idemhttp

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A646: Transport takes an answer to a call for final if the Middleware of the service records it, and for nothing else: a status
// without a code of RPC is not recorded, and a handler that tried again had another key, so an attempt that took over executed
// the first one once more. A type of protobuf alone does not make a call of a request of REST, whose 201 was not recorded.
func TestTransportKnowsWhatIsRecorded(t *testing.T) {
	t.Parallel()
	const proto, json = "application/proto", "application/json"
	coded := func(code string) string { return fmt.Sprintf(`{"code":%q,"message":"no"}`, code) }
	for _, c := range []struct {
		asked, version string
		status         int
		kind, body     string
		recorded       bool
	}{
		{proto, "1", 400, json, coded("invalid_argument"), true},
		{proto, "1", 400, json, coded("unavailable"), false},
		{proto, "1", 404, json, coded("not_found"), true},
		{proto, "1", 400, json, `{}`, false},
		{proto, "1", 400, "text/plain", "no codec", false},
		{proto, "1", 413, "", "", false},
		{proto, "1", 415, "text/html", "no", false},
		{proto, "1", 200, "text/html", "welcome", false},
		{proto, "1", 200, proto, "m", true},
		{proto, "1", 202, proto, "m", false},
		{json, "1", 200, json, "{}", true},
		{json, "1", 415, "", "", false},
		{"application/grpc-web+proto", "", 415, "text/plain", "no", false},
		{"application/grpc-web+proto", "", 200, "text/html", "welcome", false},
		{"application/connect+json", "", 400, json, `{"code":"invalid_argument"}`, false}, // its client reads the status alone
		{"application/connect+json", "", 404, "", "", false},
		{"application/grpc", "", 415, "application/grpc", "", false},
		{"application/grpc", "", 200, "", "", false},
		{proto, "", 200, proto, "m", true},
		{proto, "", 201, proto, "m", true},
		{proto, "", 204, "", "", true},
		{proto, "", 400, "text/plain", "no", true},
		{proto, "", 404, "", "", false},
		{json, "", 201, json, "{}", true},
		{json, "", 400, "text/plain", "no", true},
		{json, "", 404, "text/html", "no", true},
	} {
		r := httptest.NewRequest(http.MethodPost, "/pay", nil)
		r.Header.Set("Content-Type", c.asked)
		if c.version != "" {
			r.Header.Set("Connect-Protocol-Version", c.version)
		}
		rec := record(httptest.NewRecorder(), r, 1<<10, nil)
		if c.kind != "" {
			rec.Header().Set("Content-Type", c.kind)
		}
		rec.WriteHeader(c.status)
		_, _ = io.WriteString(rec, c.body)
		rec.end(&config{})
		end := rec.judge()
		require.Equal(t, c.recorded, end.kind.Action() == idempotency.Remember, "%+v: %s", c, end.text)

		retries := 0
		resp := &http.Response{StatusCode: c.status, Header: rec.head, Body: io.NopCloser(strings.NewReader(c.body))}
		answered(r, resp, nil, func() { retries++ })
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, c.body, string(body))
		require.Equal(t, c.recorded, retries == 0, "%+v", c)
	}

	// A redirect is followed with the same key.
	r := httptest.NewRequest(http.MethodPost, "/pay", nil)
	r.Header.Set("Content-Type", "application/grpc")
	answered(r, &http.Response{StatusCode: http.StatusPermanentRedirect, Header: http.Header{"Location": {"/v2"}}, Body: http.NoBody}, nil, func() { t.Error("a retry") })
}
