package otelkit

import (
	"context"
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// Note returns a text by which the calls that wait for a permit find the span of ctx: give it to the
// option concurrency.Note, alone or with a space and more text after it. It is the traceparent of W3C
// Trace Context, such as "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". It is empty if ctx
// has no span.
func Note(ctx context.Context) string {
	s := trace.SpanContextFromContext(ctx)
	if !s.IsValid() {
		return ""
	}
	flags := [1]byte{byte(s.TraceFlags())}
	return "00-" + s.TraceID().String() + "-" + s.SpanID().String() + "-" + hex.EncodeToString(flags[:])
}

// spanOf returns the span that a note names. Notes come from other processes: ok is false for any other
// text.
func spanOf(note string) (s trace.SpanContext, ok bool) {
	note, _, _ = strings.Cut(note, " ")
	parts := strings.Split(note, "-")
	if len(parts) != 4 || parts[0] != "00" || len(parts[3]) != 2 {
		return s, false
	}
	traceID, err := trace.TraceIDFromHex(parts[1])
	if err != nil {
		return s, false
	}
	spanID, err := trace.SpanIDFromHex(parts[2])
	if err != nil {
		return s, false
	}
	flags, err := hex.DecodeString(parts[3])
	if err != nil {
		return s, false
	}
	s = trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0]), Remote: true})
	return s, s.IsValid()
}
