package exporter_test

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

const (
	// soon bounds what should happen at once.
	soon = testkit.Soon
	// look is the time between two looks at the metrics, which are not signalled.
	look = 10 * time.Millisecond
)

var (
	ctxT   = testkit.Context
	closed = testkit.Closed
)

type fixture struct{ testkit.Fixture }

func shared(t testing.TB) fixture { return fixture{testkit.Shared(t)} }

// idle are the options of a session that does nothing by itself during a test.
func idle() *concurrency.SessionOptions {
	return &concurrency.SessionOptions{TTL: 300 * time.Second}
}

// running is an exporter whose Run is active, with a registry of its own.
type running struct {
	*exporter.Exporter
	t      testing.TB
	reg    *prometheus.Registry
	cancel context.CancelFunc
	ended  chan error
}

// namespace is that of the sessions of testkit.
func (f fixture) namespace(s *concurrency.Session) string {
	return path.Base(s.NamespacePrefix())
}

// export runs an exporter of a session's namespace, on a client of its own.
func (f fixture) export(s *concurrency.Session, opts *exporter.Options, change ...func(*exporter.Exporter)) *running {
	f.T.Helper()
	return f.exportOn(f.NewClient(f.T, nil).Client, f.namespace(s), opts, change...)
}

func (f fixture) exportOn(c *clientv3.Client, namespace string, opts *exporter.Options, change ...func(*exporter.Exporter)) *running {
	f.T.Helper()
	var o exporter.Options
	if opts != nil {
		o = *opts
	}
	o.Prefix = f.Root
	e, err := exporter.New(c, namespace, &o)
	require.NoError(f.T, err)
	for _, fn := range change {
		fn(e)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Exporter: e, t: f.T, reg: prometheus.NewPedanticRegistry(), cancel: cancel, ended: make(chan error, 1)}
	require.NoError(f.T, r.reg.Register(e))
	go func() { r.ended <- e.Run(ctx) }()
	f.T.Cleanup(func() { r.cancel(); <-r.ended })
	return r
}

// series returns the values of all series, as name{label="value",…} without the namespace, and without the prefix
// etcdkit_ of names and labels.
func (r *running) series() map[string]float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	require.NoError(r.t, err)
	out := map[string]float64{}
	for _, fam := range families {
		for _, m := range fam.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "etcdkit_namespace" {
					labels = append(labels, fmt.Sprintf("%s=%q", strings.TrimPrefix(l.GetName(), "etcdkit_"), l.GetValue()))
				}
			}
			slices.Sort(labels)
			out[strings.TrimPrefix(fam.GetName(), "etcdkit_")+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// shows waits until the metrics have these values, by the form of series.
func (r *running) shows(want map[string]float64) map[string]float64 {
	r.t.Helper()
	var got map[string]float64
	ok := func() bool {
		got = r.series()
		for name, value := range want {
			if is, there := got[name]; !there || is != value {
				return false
			}
		}
		return true
	}
	deadline := time.Now().Add(soon)
	for !ok() {
		if time.Now().After(deadline) {
			for name, value := range want {
				is, there := got[name]
				if !there || is != value {
					r.t.Errorf("%s is %v (%v), want %v", name, is, there, value)
				}
			}
			r.t.Fatalf("all: %v", lines(got))
		}
		time.Sleep(look)
	}
	return got
}

// reaches waits until the exporter has seen all that is in etcd now.
func (r *running) reaches(f fixture) map[string]float64 {
	r.t.Helper()
	rev, err := f.Revision(ctxT(r.t))
	require.NoError(r.t, err)
	var got map[string]float64
	require.Eventually(r.t, func() bool {
		got = r.series()
		return got["exporter_up{}"] == 1 && got["exporter_revision{}"] >= float64(rev)
	}, soon, look, "the exporter does not reach revision %d", rev)
	return got
}

func lines(series map[string]float64) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(series)) {
		fmt.Fprintf(&b, "\n%s %v", name, series[name])
	}
	return b.String()
}

// of returns the series of a queue, job or store by the metric's name.
func of(labels string, values map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for name, v := range values {
		out[name+"{"+labels+"}"] = v
	}
	return out
}

func queue(kind, name string) string { return fmt.Sprintf("kind=%q,name=%q", kind, name) }

// answer is what an Acquire in a goroutine returns.
type answer struct {
	p   *concurrency.Permit
	err error
}

// ask calls Acquire in a goroutine and returns when its request is in etcd.
func (f fixture) ask(ctx context.Context, sm *concurrency.Semaphore, opts ...concurrency.AcquireOption) <-chan answer {
	f.T.Helper()
	before, err := sm.Status(ctx)
	require.NoError(f.T, err)
	ch := make(chan answer, 1)
	go func() {
		p, err := sm.Acquire(ctx, opts...)
		ch <- answer{p, err}
	}()
	require.Eventually(f.T, func() bool {
		now, err := sm.Status(ctx)
		return err == nil && len(now.Holders)+len(now.Waiters) > len(before.Holders)+len(before.Waiters)
	}, soon, look, "the request does not appear")
	return ch
}

func (f fixture) granted(ch <-chan answer) *concurrency.Permit {
	f.T.Helper()
	a := testkit.Got(f.T, ch, "the permit is granted")
	require.NoError(f.T, a.err)
	return a.p
}

func acquire(t testing.TB, ctx context.Context, sm *concurrency.Semaphore, opts ...concurrency.AcquireOption) *concurrency.Permit {
	t.Helper()
	p, err := sm.Acquire(ctx, opts...)
	require.NoError(t, err)
	return p
}

// without returns a copy of a ctx that ends with the test's, and its end.
func cancellable(t testing.TB) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctxT(t))
	t.Cleanup(cancel)
	return ctx, cancel
}
