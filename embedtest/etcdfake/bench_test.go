package etcdfake_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// BenchmarkReady is the time until a new fake has answered the first request of a new client.
func BenchmarkReady(b *testing.B) {
	for range b.N {
		etcd := etcdfake.New(b)
		if _, err := etcd.NewClient().Get(b.Context(), "a"); err != nil {
			b.Fatal(err)
		}
		etcd.Close()
	}
}

// BenchmarkCall is the time of one call of etcd's client.
func BenchmarkCall(b *testing.B) {
	client := etcdfake.New(b).NewClient()
	for name, call := range map[string]func(context.Context) error{
		"get": func(ctx context.Context) error { _, err := client.Get(ctx, "a"); return err },
		"put": func(ctx context.Context) error { _, err := client.Put(ctx, "a", "1"); return err },
		"txn": func(ctx context.Context) error {
			_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Version("a"), ">", 0)).Then(clientv3.OpPut("b", "1")).Else(clientv3.OpGet("a")).Commit()
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if err := call(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPutBesideLeases is the time of a Put beside so many leases.
func BenchmarkPutBesideLeases(b *testing.B) {
	for _, leases := range []int{100, 10_000} {
		b.Run(fmt.Sprint(leases), func(b *testing.B) {
			client := etcdfake.New(b).NewClient()
			for range leases {
				if _, err := client.Grant(b.Context(), 3600); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if _, err := client.Put(b.Context(), "a", "1"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLostPermit is a whole unit test of the loss of a permit, with a fake, a client and a session of its own.
func BenchmarkLostPermit(b *testing.B) {
	passed := runTest(func(t *testing.T) {
		for range b.N {
			etcdfake.Test(t, func(t *testing.T, etcd *etcdfake.Server) {
				s := session(t, etcd.NewClient())
				m, err := concurrency.NewMutex(s, "export")
				ok(t, err)
				err = m.Do(t.Context(), func(ctx context.Context, _ *concurrency.Permit) error {
					etcd.Expire(s.Lease())
					<-ctx.Done()
					return nil
				})
				if !errors.Is(err, concurrency.ErrLost) {
					t.Error(err)
				}
			})
		}
	})
	if !passed {
		b.Fatal("the test failed")
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tests/s")
}
