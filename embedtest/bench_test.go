package embedtest

import (
	"context"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The figures are medians of the wall time of one start or one close. The aims are 50 ms for
// the start of one member, 150 ms for three, and 50 ms for a close.

func BenchmarkStart1(b *testing.B) { benchStart(b, 1) }
func BenchmarkStart3(b *testing.B) { benchStart(b, 3) }

func benchStart(b *testing.B, members int) {
	var took []time.Duration
	for range b.N {
		begin := time.Now()
		c, err := New(b.Context(), &Options{Members: members})
		took = append(took, time.Since(begin))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	report(b, took, "ms/ready")
}

func BenchmarkCloseWithWatches(b *testing.B) {
	for name, members := range map[string]int{"1": 1, "3": 3} {
		b.Run(name, func(b *testing.B) { benchClose(b, members) })
	}
}

func benchClose(b *testing.B, members int) {
	var took []time.Duration
	for range b.N {
		b.StopTimer()
		c, err := New(b.Context(), &Options{Members: members})
		if err != nil {
			b.Fatal(err)
		}
		outside, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Logger: c.log})
		if err != nil {
			b.Fatal(err)
		}
		for range 10 {
			for _, cl := range []*clientv3.Client{c.Client(), outside} {
				<-cl.Watch(context.Background(), "w", clientv3.WithCreatedNotify())
			}
		}
		b.StartTimer()
		begin := time.Now()
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
		b.StopTimer()
		_ = outside.Close()
		b.StartTimer()
	}
	report(b, took, "ms/closed")
}

func report(b *testing.B, took []time.Duration, unit string) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, unit)
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-"+unit)
}

// BenchmarkPut measures what the interceptors and the link cost while no fault is in force.
func BenchmarkPut(b *testing.B) {
	c := Start(b, nil)
	cl := c.NewClient(b, nil)
	for name, kv := range map[string]*clientv3.Client{"plain": c.Client(), "breakable": cl.Client} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if _, err := kv.Put(b.Context(), "k", "v"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
