//go:build unix

package exporter_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// thousands leaves 2,000 names in etcd, of all kinds, each with something in use.
func thousands(b *testing.B, s *concurrency.Session) (semaphores []*concurrency.Semaphore) {
	b.Helper()
	ctx := ctxT(b)
	jobs, err := schedlock.New(s, nil)
	require.NoError(b, err)
	var all sync.WaitGroup
	turns := make(chan struct{}, 50)
	each := func(kind string, n int, use func(name string) error) {
		for i := range n {
			turns <- struct{}{}
			all.Go(func() {
				defer func() { <-turns }()
				if err := use(fmt.Sprintf("%s-%04d", kind, i)); err != nil {
					b.Error(err)
				}
			})
		}
	}
	var mu sync.Mutex
	each("semaphore", 1000, func(name string) error {
		sem, err := concurrency.NewSemaphore(s, name, 3, nil)
		if err == nil {
			_, err = sem.Acquire(ctx)
		}
		mu.Lock()
		defer mu.Unlock()
		semaphores = append(semaphores, sem)
		return err
	})
	each("mutex", 200, func(name string) error {
		m, err := concurrency.NewMutex(s, name)
		if err == nil {
			_, err = m.Lock(ctx)
		}
		return err
	})
	each("election", 200, func(name string) error {
		e, err := concurrency.NewElection(s, name)
		if err == nil {
			_, err = e.Campaign(ctx)
		}
		return err
	})
	each("limiter", 200, func(name string) error {
		l, err := concurrency.NewKeyedLimiter(s, name, 2, &concurrency.KeyedLimiterOptions{Total: 10})
		if err == nil {
			_, err = l.Key("acme").Acquire(ctx)
		}
		return err
	})
	each("job", 200, func(name string) error {
		_, err := jobs.Do(ctx, name, nothing, schedlock.Every(time.Hour))
		return err
	})
	each("store", 200, func(name string) error {
		st, err := idempotency.NewStore(s, name, nil)
		if err == nil {
			_, err = idempotency.Do(ctx, st, idempotency.Key{Scope: "shop", Op: "pay", ID: "1"}, "x", func(context.Context, *idempotency.Attempt) (int, error) { return 1, nil })
		}
		return err
	})
	all.Wait()
	return semaphores
}

// BenchmarkScrape2000 scrapes the exporter of a namespace with 2,000 names in a real etcd, by HTTP as Prometheus does, with gzip:
// nothing changes meanwhile, or permits of all semaphores are acquired and released all the time; by a registry, or by the Exporter
// itself. 30 ms are the target. Beside
// other work cpu-ms says what a scrape takes: the processor time of this process, in which etcd and the callers are, too.
func BenchmarkScrape2000(b *testing.B) {
	f := fixture{own(b)}
	s, _ := f.Session(idle())
	semaphores := thousands(b, s)
	e, err := exporter.New(f.NewClient(b, nil).Client, f.namespace(s), &exporter.Options{Prefix: f.Root, MaxNames: 2000})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(ctxT(b))
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = e.Run(ctx) })
	reg := prometheus.NewRegistry()
	reg.MustRegister(e)
	scrape := func(page http.Handler) (bytes int) {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", "text/plain;version=0.0.4")
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		return w.Body.Len()
	}
	require.Eventually(b, func() bool {
		families, err := reg.Gather()
		names := 0
		for _, family := range families {
			if family.GetName() == "etcdkit_held" || family.GetName() == "etcdkit_job_running" || family.GetName() == "etcdkit_requests_unknown_of_one_scope" {
				names += len(family.GetMetric())
			}
		}
		return err == nil && names == 2200 // of a limiter with a total two
	}, time.Minute, 100*time.Millisecond)
	measure := func(b *testing.B) {
		for name, from := range map[string]prometheus.Gatherer{"registry": reg, "exporter": e} {
			b.Run(name, func(b *testing.B) {
				page := promhttp.HandlerFor(from, promhttp.HandlerOpts{})
				begun := processor(b)
				for b.Loop() {
					b.ReportMetric(float64(scrape(page)), "bytes")
				}
				b.ReportMetric((processor(b)-begun).Seconds()*1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
	b.Run("idle", measure)
	b.Run("busy", func(b *testing.B) {
		at, end := context.WithCancel(ctx)
		var work sync.WaitGroup
		for i := range 20 {
			work.Go(func() {
				for n := i; at.Err() == nil; n += 20 {
					_ = semaphores[n%len(semaphores)].Do(at, func(context.Context, *concurrency.Permit) error { return nil })
				}
			})
		}
		measure(b)
		end()
		work.Wait()
	})
}

// processor returns the processor time that this process has used.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
