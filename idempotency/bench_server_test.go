package idempotency_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
)

// BenchmarkServer shows what a new request costs an etcd server that is a process of its own, with
// fsync on: the CPU time of that process for each request, and how many requests a second there
// are, beside the two Txns of a claim and its completion sent bare. They take turns; each figure is
// the median of the rounds, and each ratio the median of the ratios of one turn. On a machine with
// other work the ratios count.
func BenchmarkServer(b *testing.B) {
	etcd, client, store := apart(b)
	txns := newBareTxns(b, client)
	value := make([]byte, 200)
	_, _ = rand.Read(value)
	var names atomic.Int64
	do := func(opts ...idempotency.Option) func() error {
		return func() error {
			_, err := idempotency.Do(b.Context(), store, key(fmt.Sprint(names.Add(1))), "payload", func(context.Context, *idempotency.Attempt) ([]byte, error) { return value, nil }, opts...)
			return err
		}
	}
	ways := []struct {
		name string
		call func() error
	}{
		{"bare", func() error { return txns.request(b.Context(), names.Add(1)) }},
		{"new", do()},
		{"likely-new", do(idempotency.LikelyNew())},
	}
	for _, inFlight := range []int{1, 32, 512} {
		b.Run(fmt.Sprintf("%d in flight", inFlight), func(b *testing.B) {
			const rounds = 9
			each := max(b.N/rounds, 4*inFlight, 50)
			var cost, own, took [3][]float64 // µs of CPU of the server and of this process, and µs, for each request
			b.ResetTimer()
			for round := range rounds + 1 { // the first one warms up
				for turn := range ways {
					n := (turn + round) % len(ways)
					before, mine, begun := cpuOf(b, etcd.Member(0).PID()), cpuOf(b, os.Getpid()), time.Now()
					require.NoError(b, atOnce(inFlight, each, ways[n].call))
					if round > 0 {
						took[n] = append(took[n], float64(time.Since(begun).Microseconds())/float64(each))
						own[n] = append(own[n], float64((cpuOf(b, os.Getpid())-mine).Microseconds())/float64(each))
						cost[n] = append(cost[n], float64((cpuOf(b, etcd.Member(0).PID())-before).Microseconds())/float64(each))
					}
				}
			}
			b.StopTimer()
			median := func(all []float64) float64 {
				all = slices.Sorted(slices.Values(all))
				return all[len(all)/2]
			}
			for n, way := range ways {
				faster, cheaper := make([]float64, rounds), make([]float64, rounds)
				for i := range rounds {
					faster[i], cheaper[i] = took[0][i]/took[n][i], cost[n][i]/cost[0][i]
				}
				b.ReportMetric(median(cost[n]), way.name+"-server-µs/op")
				b.ReportMetric(median(own[n]), way.name+"-client-µs/op")
				b.ReportMetric(1e6/median(took[n]), way.name+"/s")
				if n > 0 {
					b.ReportMetric(median(faster), way.name+"-x-bare-rate")
					b.ReportMetric(median(cheaper), way.name+"-x-bare-server-µs")
				}
			}
		})
	}
}

// atOnce makes n calls, so many at once.
func atOnce(inFlight, n int, call func() error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, inFlight)
	for i := range inFlight {
		wg.Go(func() {
			for next.Add(1) <= int64(n) && errs[i] == nil {
				errs[i] = call()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// cpuOf returns the CPU time that the threads of a process have used.
func cpuOf(b *testing.B, pid int) (sum time.Duration) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	require.NoError(b, err)
	for _, path := range threads {
		text, _ := os.ReadFile(path) // a thread may have ended
		ns, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		sum += time.Duration(n)
	}
	return sum
}

// bareTxns are a claim and its completion as two Txns, with as many keys, conditions and bytes.
type bareTxns struct {
	client     *clientv3.Client
	own, lease clientv3.LeaseID
	working    string
}

func newBareTxns(b *testing.B, client *clientv3.Client) *bareTxns {
	t := &bareTxns{client: client, working: string(make([]byte, 230))}
	for _, id := range []*clientv3.LeaseID{&t.own, &t.lease} {
		resp, err := client.Grant(ctxT(b), 86400)
		require.NoError(b, err)
		*id = resp.ID
	}
	_, err := client.Put(ctxT(b), "bare/fence", "x", clientv3.WithLease(t.own))
	require.NoError(b, err)
	return t
}

func (t *bareTxns) request(ctx context.Context, n int64) error {
	name := fmt.Sprintf("bare/%075d", n)
	created := func(key, is string, rev int64) clientv3.Cmp {
		return clientv3.Compare(clientv3.CreateRevision(key), is, rev)
	}
	first, err := t.client.Txn(ctx).
		If(created(name, "=", 0), created("bare/fence", ">", 0)).
		Then(clientv3.OpPut(name, t.working, clientv3.WithLease(t.lease))).Commit()
	if err != nil || !first.Succeeded {
		return errors.Join(err, errors.New("no claim"))
	}
	second, err := t.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(name), "=", first.Header.Revision)).
		Then(clientv3.OpPut(name, t.working+t.working, clientv3.WithLease(t.lease))).
		Else(clientv3.OpGet(name)).Commit()
	if err != nil || !second.Succeeded {
		return errors.Join(err, errors.New("no completion"))
	}
	return nil
}
