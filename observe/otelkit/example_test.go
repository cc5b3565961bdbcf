package otelkit_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/etcdkit/etcdkit/observe"
	"github.com/etcdkit/etcdkit/observe/otelkit"
)

// A view of the SDK leaves out what no alert needs: the durations of releases, and most buckets of the others.
func ExampleNew_view() {
	fewer := func(i sdkmetric.Instrument) (sdkmetric.Stream, bool) {
		s := sdkmetric.Stream{Name: i.Name, Description: i.Description, Unit: i.Unit}
		switch {
		case i.Name == "etcdkit.release.duration":
			s.Aggregation = sdkmetric.AggregationDrop{}
		case strings.HasPrefix(i.Name, "etcdkit.") && strings.HasSuffix(i.Name, ".duration"):
			s.Aggregation = sdkmetric.AggregationExplicitBucketHistogram{Boundaries: []float64{.01, .1, 1, 10, 30}}
		default:
			return s, false
		}
		return s, true
	}
	for _, views := range [][]sdkmetric.View{nil, {fewer}} {
		reader := sdkmetric.NewManualReader()
		hooks, err := otelkit.New(&otelkit.Options{
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithView(views...)),
			TracerProvider: sdktrace.NewTracerProvider(),
		})
		if err != nil {
			log.Fatal(err)
		}
		permit(hooks)
		fmt.Println(series(reader), "series in Prometheus")
	}
	// Output:
	// 63 series in Prometheus
	// 19 series in Prometheus
}

// permit calls hooks as a session does for a permit.
func permit(hooks observe.Hooks) {
	for _, op := range []observe.Op{observe.Acquire, observe.Hold, observe.Release} {
		_, end := hooks.Start(context.Background(), observe.Call{Op: op, Kind: observe.Semaphore, Name: "charge", Namespace: "payments"})
		end(observe.Outcome{Result: observe.Granted, Took: time.Millisecond})
	}
}

// series returns how many series a reader's metrics are in Prometheus.
func series(reader sdkmetric.Reader) (n int) {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		log.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				n += len(p.BucketCounts) + len([]string{"sum", "count"})
			}
		case metricdata.Sum[int64]:
			n += len(data.DataPoints)
		}
	}
	return n
}
