package exporter

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// filled returns the state of a namespace with so many requests for permits, evenly in so many semaphores,
// and as many records of requests of one store.
func filled(b *testing.B, requests, semaphores int) *state {
	b.Helper()
	space, err := keyspace.New("/etcdkit", "payments")
	if err != nil {
		b.Fatal(err)
	}
	s := newState(space)
	at := time.Now().UnixMilli()
	permit := []byte(record.Request{Nonce: "0123456789abcdef", Owner: "payments-7d9c5b9f4-x2x8z", AtMS: at}.Encode())
	outcome := []byte(record.Attempt{State: record.AttemptDone}.Encode())
	store := space.Store("charges")
	for i := range requests {
		q := space.Queue(keyspace.Semaphore, fmt.Sprint("semaphore-", i%semaphores))
		rev := int64(i + 1)
		s.put(&mvccpb.KeyValue{
			Key: []byte(q.Slot(keyspace.Slot{Lease: int64(1000 + i%100), Number: i / semaphores, Weight: 1})), Value: permit,
			CreateRevision: rev, ModRevision: rev, Lease: int64(1000 + i%100),
		}, at)
		s.put(&mvccpb.KeyValue{Key: []byte(store.Records() + fmt.Sprintf("%032x", i)), Value: outcome, CreateRevision: rev, ModRevision: rev}, at)
	}
	s.revision = int64(requests)
	return s
}

// BenchmarkKeys reports the memory for each key, and the time of its change.
func BenchmarkKeys(b *testing.B) {
	const requests = 50_000
	before := heap()
	s := filled(b, requests, 100)
	s.settle(time.Now().UnixMilli())
	after := heap()
	begun := time.Now()
	for b.Loop() {
		filled(b, requests, 100)
	}
	b.ReportMetric(float64(time.Since(begun).Nanoseconds())/float64(b.N)/(2*requests), "ns/key")
	b.ReportMetric(float64(after-before)/float64(len(s.keys)), "B/key")
	runtime.KeepAlive(s)
}

// BenchmarkScrape gathers the metrics of a thousand semaphores with fifty requests each, whose keys have not
// changed, or all have.
func BenchmarkScrape(b *testing.B) {
	for _, changed := range []bool{false, true} {
		b.Run(fmt.Sprintf("changed=%v", changed), func(b *testing.B) {
			s := filled(b, 50_000, 1000)
			e := &Exporter{opts: Options{Now: time.Now, MaxNames: 1000, Probe: time.Hour}, descs: newDescs("payments"), state: s, answered: time.Now()}
			reg := prometheus.NewRegistry()
			reg.MustRegister(e)
			for b.Loop() {
				if changed {
					for _, l := range s.queues {
						s.touch(l)
					}
				}
				if _, err := reg.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
