package idemhttp_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/idempotency/internal/rpc"
)

// roundTrip is a Base.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Q12: within an attempt, a call of RPC is a retry of the equal one before it if that has ended with a code that
// is not recorded, or if its end was not read (Q12 in internal/proof/tested-failures.md). So it is of a gateway's answer that
// the outcome is unknown in the service behind it (A331), whose status is a final 400.
func TestRetryOfAnRPC(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	frame := func(flags byte, content string) string {
		return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(content)))) + content
	}
	gateway := func(domain, reason string) string { // as grpc-gateway writes a status
		return fmt.Sprintf(`{"code":9,"message":"no","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":%q,"domain":%q}]}`, reason, domain)
	}
	const grpc, web, stream = "application/grpc", "application/grpc-web+proto", "application/connect+proto"
	for name, c := range map[string]struct {
		kind, header, trailer, body string
		unread, unknown, retry      bool
		status                      int // 0 is 200
	}{
		"OK":                         {kind: grpc, trailer: "0"},
		"unavailable":                {kind: grpc, trailer: "14", retry: true},
		"in progress":                {kind: grpc, header: "10", retry: true},
		"in progress, not read":      {kind: grpc, header: "10", unread: true, retry: true},
		"a final no":                 {kind: grpc, header: "9"},
		"a final no, not read":       {kind: grpc, header: "9", unread: true},
		"no status":                  {kind: grpc, retry: true},
		"not read":                   {kind: grpc, trailer: "0", unread: true, retry: true},
		"Web: OK":                    {kind: web, body: frame(0, "m") + frame(0x80, "grpc-status: 0\r\n")},
		"Web: unavailable":           {kind: web, body: frame(0x80, "grpc-status: 14\r\n"), retry: true},
		"Web: cut":                   {kind: web, body: frame(0, "m"), retry: true},
		"stream: OK":                 {kind: stream, body: frame(0, "m") + frame(2, "{}")},
		"stream: unavailable":        {kind: stream, body: frame(2, `{"error":{"code":"unavailable"}}`), retry: true},
		"stream: final":              {kind: stream, body: frame(2, `{"error":{"code":"not_found"}}`)},
		"stream: not read":           {kind: stream, body: frame(2, "{}"), unread: true, retry: true},
		"its outcome is unknown":     {kind: "application/json", unknown: true, retry: true},
		"gateway: unknown":           {kind: "application/json", status: 400, body: gateway(rpc.Domain, "UNKNOWN"), retry: true},
		"gateway: unknown, not read": {kind: "application/json", status: 400, body: gateway(rpc.Domain, "UNKNOWN"), unread: true, retry: true},
		"gateway: in progress":       {kind: "application/json", status: 400, body: gateway(rpc.Domain, "IN_PROGRESS"), retry: true},
		"gateway: a final no":        {kind: "application/json", status: 400, body: gateway(rpc.Domain, "REUSED")},
		"gateway: of another domain": {kind: "application/json", status: 400, body: gateway("shop.example", "UNKNOWN")},
		"a final no in JSON":         {kind: "application/json", status: 402, body: `{"code":"card_declined"}`},
		"another type is no call":    {kind: "text/plain", trailer: "14"},
		"an unknown RPC is a call":   {kind: "application/grpc+thrift", trailer: "14", retry: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _, err := in.Begin(ctxT(t), idempotency.Key{Op: "pay", ID: name}, nil)
			require.NoError(t, err)
			var keys []string
			client := &http.Client{Transport: &idemhttp.Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
				keys = append(keys, r.Header.Get("Idempotency-Key"))
				resp := &http.Response{StatusCode: cmp.Or(c.status, 200), Header: http.Header{"Content-Type": {c.kind}}, Request: r}
				if c.unknown {
					resp.StatusCode = http.StatusBadRequest // as Connect has it
					resp.Header.Set("Idempotency-Outcome", "unknown")
				}
				if c.header != "" {
					resp.Header.Set("Grpc-Status", c.header)
				}
				resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(c.body), atEnd(func() {
					if c.trailer != "" {
						resp.Trailer = http.Header{"Grpc-Status": {c.trailer}}
					}
				})))
				return resp, nil
			})}}
			for range 2 {
				r, err := http.NewRequestWithContext(a.Context(), http.MethodPost, "http://pay.test/", strings.NewReader("m"))
				require.NoError(t, err)
				resp, err := client.Do(r)
				require.NoError(t, err)
				if !c.unread {
					body, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.Equal(t, c.body, string(body))
				}
				require.NoError(t, resp.Body.Close())
			}
			require.Equal(t, c.retry, keys[0] == keys[1])
		})
	}
}
