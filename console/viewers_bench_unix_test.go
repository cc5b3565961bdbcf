//go:build unix

package console_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// The variables that make this program a process that is a console and nothing else.
const (
	consoleOf   = "CONSOLE_BENCH_ETCD"
	consoleRoot = "CONSOLE_BENCH_PREFIX"
)

func init() {
	if os.Getenv(consoleOf) != "" {
		asProcess = func() {
			if err := serveAlone(); err != nil {
				panic(err)
			}
		}
	}
}

// serveAlone serves a console until the standard input ends, at /usage the nanoseconds that its process was at work, and at
// /heap the bytes that it keeps.
func serveAlone() error {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Getenv(consoleOf), ",")})
	if err != nil {
		return err
	}
	sess, err := concurrency.NewSession(context.Background(), client, "test", &concurrency.SessionOptions{Owner: "console", Prefix: os.Getenv(consoleRoot)})
	if err != nil {
		return err
	}
	page, err := console.Handler(sess, nil)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", page)
	mux.HandleFunc("/usage", func(w http.ResponseWriter, _ *http.Request) {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		fmt.Fprint(w, u.Utime.Nano()+u.Stime.Nano())
	})
	mux.HandleFunc("/heap", func(w http.ResponseWriter, _ *http.Request) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Fprint(w, m.HeapAlloc)
	})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + lis.Addr().String())
	go func() { _ = http.Serve(lis, mux) }() //nolint:gosec // it is a test's
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// alone starts a process that is a console, and returns its address.
func alone(b *testing.B, f testkit.Fixture) string {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), consoleOf+"="+strings.Join(f.Endpoints(), ","), consoleRoot+"="+f.Root)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	return strings.TrimSpace(line)
}

// fetch reads a page as the script of the console does: with the tag of what is shown.
func fetch(ctx context.Context, client *http.Client, address, tag string) (body, next string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", "", err
	}
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	resp, err := client.Do(r)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotModified {
		err = fmt.Errorf("%s: %s", address, resp.Status)
	}
	return string(text), resp.Header.Get("ETag"), err
}

// asked returns a number that a console says which is a process.
func asked(b *testing.B, address string) float64 {
	b.Helper()
	body, _, err := fetch(testkit.Context(b), http.DefaultClient, address, "")
	require.NoError(b, err)
	n, err := strconv.ParseFloat(body, 64)
	require.NoError(b, err)
	return n
}

// churn has twenty requests a second begin and end, in the crowd and at names, until ctx ends.
func churn(ctx context.Context, b *testing.B, f testkit.Fixture) {
	space, err := keyspace.New(f.Root, "test")
	require.NoError(b, err)
	client := f.NewClient(b, nil)
	lease, err := client.Grant(ctx, 600)
	require.NoError(b, err)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		at := func(n int) string {
			name := "crowd"
			if n%2 == 1 {
				name = fmt.Sprintf("name-%04d", n%2000)
			}
			return space.Queue(keyspace.Semaphore, name).Slot(keyspace.Slot{Lease: int64(lease.ID), Number: n, Weight: 1})
		}
		request := record.Request{Nonce: "n", Owner: "web-8", Note: strconv.Itoa(n), AtMS: time.Now().UnixMilli()}.Encode()
		ops := []clientv3.Op{clientv3.OpPut(at(n), request, clientv3.WithLease(lease.ID))}
		if n >= 20 {
			ops = append(ops, clientv3.OpDelete(at(n-20)))
		}
		if _, err := client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return
		}
	}
}

// BenchmarkViewers has fifty viewers follow the pages of a namespace of 10,000 waiters, 2,000 names and 5,000 requests, of
// which twenty a second begin and end, as their browsers do: each two seconds. It reports which part of a processor the
// console uses, the time in which 95 of 100 pages come, and the heap of its process. BenchmarkHistory reports what of the heap an hour of
// history takes.
func BenchmarkViewers(b *testing.B) {
	const viewers, every, during = 50, 2 * time.Second, 20 * time.Second
	f := testkit.Shared(b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	crowded(ctx, b, f, 5_000)
	address := alone(b, f)
	paths := []string{"/", "/queues", "/queue?name=semaphore/crowd", "/queue?name=semaphore/name-0007", "/store?name=orders", "/jobs", "/sessions", "/queues?show=waiting", "/stores", "/elections"}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: viewers}}
	for _, path := range paths {
		require.Eventually(b, func() bool { _, _, err := fetch(ctx, client, address+path, ""); return err == nil }, time.Minute, 100*time.Millisecond, path)
	}
	go churn(ctx, b, f)
	for b.Loop() {
		round, stop := context.WithTimeout(ctx, during)
		before := asked(b, address+"/usage")
		var mu sync.Mutex
		var took []time.Duration
		var all sync.WaitGroup
		for n := range viewers {
			all.Go(func() {
				tag := ""
				select { // as people come, one after the other
				case <-time.After(every * time.Duration(n) / viewers):
				case <-round.Done():
				}
				for round.Err() == nil {
					at := time.Now()
					_, next, err := fetch(round, client, address+paths[n%len(paths)], tag)
					if err == nil {
						tag = next
						mu.Lock()
						took = append(took, time.Since(at))
						mu.Unlock()
					} else if round.Err() == nil {
						b.Error(err)
					}
					select {
					case <-time.After(every):
					case <-round.Done():
					}
				}
			})
		}
		all.Wait()
		stop()
		used := asked(b, address+"/usage") - before
		slices.Sort(took)
		b.ReportMetric(used/float64(during), "cores")
		b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(asked(b, address+"/heap")/(1<<20), "heap-MiB")
	}
}
