package fleet

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// filled returns the state of a namespace with so many requests for permits, evenly in so many semaphores,
// and, if records is set, as many records of requests of one store.
func filled(b *testing.B, requests, semaphores int, details, records bool) *State {
	b.Helper()
	space, err := keyspace.New("/etcdkit", "payments")
	if err != nil {
		b.Fatal(err)
	}
	s := NewState(space, details)
	at := time.Now().UnixMilli()
	permit := record.Request{Nonce: "0123456789abcdef", Owner: "payments-7d9c5b9f4-x2x8z", AtMS: at}.Encode()
	outcome := []byte(record.Attempt{State: record.AttemptDone}.Encode())
	store := space.Store("charges")
	for i := range requests {
		q := space.Queue(keyspace.Semaphore, fmt.Sprint("semaphore-", i%semaphores))
		rev := int64(i + 1)
		s.Put(&mvccpb.KeyValue{
			Key: []byte(q.Slot(keyspace.Slot{Lease: int64(1000 + i%100), Number: i / semaphores, Weight: 1})), Value: []byte(permit),
			CreateRevision: rev, ModRevision: rev, Lease: int64(1000 + i%100),
		}, at)
		if !records {
			continue
		}
		s.Put(&mvccpb.KeyValue{Key: []byte(store.Records() + fmt.Sprintf("%032x", i)), Value: outcome, CreateRevision: rev, ModRevision: rev}, at)
	}
	s.revision = int64(requests)
	return s
}

// BenchmarkKeys reports the memory for each key, and the time of its change: of times and states alone,
// and with what pages show besides.
func BenchmarkKeys(b *testing.B) {
	for _, details := range []bool{false, true} {
		b.Run(fmt.Sprintf("details=%v", details), func(b *testing.B) {
			const requests = 50_000
			before := heap()
			s := filled(b, requests, 100, details, true)
			s.Settle(time.Now().UnixMilli())
			after := heap()
			begun := time.Now()
			for b.Loop() {
				filled(b, requests, 100, details, true)
			}
			b.ReportMetric(float64(time.Since(begun).Nanoseconds())/float64(b.N)/(2*requests), "ns/key")
			b.ReportMetric(float64(after-before)/float64(len(s.keys)), "B/key")
			runtime.KeepAlive(s)
		})
	}
}

// BenchmarkRequests computes the order of, and reads the holders and the first hundred waiters of a queue of 10,000 requests, in a
// namespace with 1,000 names, and reports the memory for each request.
func BenchmarkRequests(b *testing.B) {
	before := heap()
	s := filled(b, 1000, 1000, true, false)
	s.Settle(time.Now().UnixMilli())
	long := filled(b, 10_000, 1, true, false)
	long.Settle(time.Now().UnixMilli())
	after := heap()
	for b.Loop() {
		for _, l := range long.Queues {
			long.touch(l)
			long.Settle(time.Now().UnixMilli())
			if holders, waiters := l.Requests(0, 100); len(holders)+len(waiters) == 0 {
				b.Fatal("no requests")
			}
		}
	}
	b.ReportMetric(float64(after-before)/11_000, "B/request")
	runtime.KeepAlive(s)
	runtime.KeepAlive(long)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
