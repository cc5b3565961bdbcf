package middleware

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A592: what traces, counts or times a call says nothing of its account, whatever the vendor calls it: such a retry was refused.
// What may name an account counts.
func TestApart(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Traceparent", "Tracestate", "X-Trace-Id", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "Uber-Trace-Id", "Elastic-Apm-Traceparent", "Sentry-Trace",
		"X-Span-Id", "X-Ot-Span-Context", "X-B3-Spanid", "Request-Id", "X-Request-Id", "X-Client-Request-Id", "X-Ms-Client-Request-Id",
		"Correlation-Id", "X-Correlation-Id", "X-Request-Start", "X-Dynatrace", "X-Newrelic-Transaction", "X-Retry-Count", "grpc-previous-rpc-attempts",
	} {
		require.Empty(t, Apart(map[string][]string{name: {"1"}}), name)
	}
	for _, name := range []string{"Authorization", "Cookie", "Stripe-Account", "X-Api-Key", "X-Tenant", "X-Request-Tenant", "X-Spanish"} {
		require.NotEmpty(t, Apart(map[string][]string{name: {"1"}}), name)
	}
}
