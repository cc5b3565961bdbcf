package otelkit

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/etcdkit/etcdkit/observe"
)

// linkedKey is the key of a context's *atomic.Bool: whether the span of the call has its links. Reports of one
// call come again and again, and a link is added for good.
type linkedKey struct{}

// waits adds a report of waiting to the span of the call that waits, and with the first one that names holders
// links to their spans.
func waits(ctx context.Context, w observe.Waiting) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	more := []attribute.KeyValue{attribute.Int("etcdkit.limit", w.Limit), attribute.Int("etcdkit.ahead", w.Ahead)}
	if w.Level != "" {
		more = append(more, attribute.String("etcdkit.level", w.Level))
	}
	linked, _ := ctx.Value(linkedKey{}).(*atomic.Bool)
	links := linked != nil && len(w.Blocking) > 0 && !linked.Swap(true)
	var owners []string
	for _, h := range w.Blocking {
		owners = append(owners, h.Owner)
		if holder, ok := spanOf(h.Note); ok && links {
			span.AddLink(trace.Link{SpanContext: holder, Attributes: []attribute.KeyValue{
				attribute.String("etcdkit.holder", h.Owner), attribute.Int64("etcdkit.token", h.Token),
			}})
		}
	}
	if owners != nil {
		more = append(more, attribute.StringSlice("etcdkit.holders", owners))
	}
	span.AddEvent("etcdkit.waiting", trace.WithAttributes(more...))
}
