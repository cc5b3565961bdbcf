package exporter

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// filled returns the state of a namespace with so many requests for permits, evenly in so many semaphores,
// and as many records of requests of one store.
func filled(b *testing.B, requests, semaphores int) *fleet.State {
	b.Helper()
	space, err := keyspace.New("/etcdkit", "payments")
	if err != nil {
		b.Fatal(err)
	}
	s := fleet.NewState(space, false)
	at := time.Now().UnixMilli()
	permit := []byte(record.Request{Nonce: "0123456789abcdef", Owner: "payments-7d9c5b9f4-x2x8z", AtMS: at}.Encode())
	outcome := []byte(record.Attempt{State: record.AttemptDone}.Encode())
	store := space.Store("charges")
	for i := range requests {
		q := space.Queue(keyspace.Semaphore, fmt.Sprint("semaphore-", i%semaphores))
		rev := int64(i + 1)
		s.Put(&mvccpb.KeyValue{
			Key: []byte(q.Slot(keyspace.Slot{Lease: int64(1000 + i%100), Number: i / semaphores, Weight: 1})), Value: permit,
			CreateRevision: rev, ModRevision: rev, Lease: int64(1000 + i%100),
		}, at)
		s.Put(&mvccpb.KeyValue{Key: []byte(store.Records() + fmt.Sprintf("%032x", i)), Value: outcome, CreateRevision: rev, ModRevision: rev}, at)
	}
	return s
}

// frozen publishes a state that does not change by itself.
type frozen struct {
	*Exporter
	state *fleet.State
}

func (f frozen) Collect(ch chan<- prometheus.Metric) {
	f.state.Settle(time.Now().UnixMilli())
	send(ch, f.samplesOf(f.state, fleet.Meta{Up: true}))
}

// BenchmarkScrape gathers the metrics of a thousand semaphores with fifty requests each, whose keys have not
// changed, or all have.
func BenchmarkScrape(b *testing.B) {
	for _, changed := range []bool{false, true} {
		b.Run(fmt.Sprintf("changed=%v", changed), func(b *testing.B) {
			s := filled(b, 50_000, 1000)
			e := &Exporter{opts: Options{Now: time.Now, MaxNames: 1000, Probe: time.Hour}, descs: newDescs("payments")}
			reg := prometheus.NewRegistry()
			reg.MustRegister(frozen{e, s})
			for b.Loop() {
				if changed {
					s.Touch()
				}
				if _, err := reg.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
