package middleware

import (
	"slices"
	"strings"
)

// Apart returns what distinguishes a call from one that says the same to the same target: its headers or metadata,
// such as the account, but for those that can differ each time a call is made. Authorization counts, whatever its
// scheme: a key of an API, a Basic user and a token name an account. So a token that was renewed between two such
// calls of an attempt looks like another account. Their swap would charge two accounts twice without a word, and
// the error names the header.
func Apart(headers map[string][]string) map[string]string {
	apart := map[string]string{}
	for name, values := range headers {
		if lower := strings.ToLower(name); !volatile(lower) {
			apart[lower] = strings.Join(values, "\n")
		}
	}
	return apart
}

// The headers that say nothing of the account, in lower case: they trace, count or time a call, or are about its
// encoding or its connection.
var (
	volatileNames = []string{
		"idempotency-key", "x-idempotency-key", "date", "user-agent", "referer", "proxy-authorization",
		"baggage", "b3", "grpc-tags-bin", "newrelic", "x-stripe-client-telemetry",
		"amz-sdk-invocation-id", "amz-sdk-request", "grpc-timeout", "connect-timeout-ms", "x-envoy-expected-rq-timeout-ms",
		"accept-encoding", "content-encoding", "content-length", "content-type", "grpc-encoding", "grpc-accept-encoding", "connect-content-encoding", "connect-accept-encoding",
		"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect",
	}
	volatilePrefixes = []string{"x-b3-", "x-datadog-", "x-dynatrace", "x-newrelic-", "ot-tracer-", "x-ot-", "x-instana-", "uberctx-"}
	volatileParts    = []string{"retry", "attempt", "trace", "span-id", "spanid", "span-context", "request-id", "requestid", "request-start", "correlation"} // as X-Retry-Count and X-Ms-Client-Request-Id
)

func volatile(name string) bool {
	return slices.Contains(volatileNames, name) ||
		slices.ContainsFunc(volatilePrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) ||
		slices.ContainsFunc(volatileParts, func(p string) bool { return strings.Contains(name, p) })
}
