package concurrency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// keeping returns a semaphore that keeps permits.
func keeping(t testing.TB, s *concurrency.Session, name string, limit int, keep time.Duration) *concurrency.Semaphore {
	t.Helper()
	sm, err := concurrency.NewSemaphore(s, name, limit, &concurrency.SemaphoreOptions{Keep: keep})
	require.NoError(t, err)
	return sm
}

// BenchmarkKept acquires and releases a permit that its process keeps, with one caller and with one
// for each processor; "asked" beside it is the same without Keep.
func BenchmarkKept(b *testing.B) {
	f := shared(b)
	s, _ := f.Session(idle())
	ctx := context.Background()
	use := func(b *testing.B, sm *concurrency.Semaphore) {
		p, err := sm.Acquire(ctx)
		if err == nil {
			err = p.Release(ctx)
		}
		if err != nil {
			b.Error(err)
		}
	}
	b.Run("asked", func(b *testing.B) {
		sm := sem(b, s, "asked", 8)
		for b.Loop() {
			use(b, sm)
		}
	})
	sm := keeping(b, s, "kept", 8, time.Hour)
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			use(b, sm)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				use(b, sm)
			}
		})
	})
}
