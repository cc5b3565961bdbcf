// Package servers starts what is measured against: etcd and Redis, each in a process of its own and
// with its writes on disk before they are confirmed.
package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/proof/procs"
	"github.com/etcdkit/etcdkit/internal/proof/procs/server"
)

// asEtcd is the variable by which the program runs itself as an etcd server.
const asEtcd = "ETCDKIT_BENCH_ETCD"

// Main runs the process as an etcd server if it was started as one; then it does not return. Call it
// first in main and TestMain.
func Main() {
	if os.Getenv(asEtcd) != "" {
		os.Exit(server.Main(os.Args[1:]))
	}
}

// Etcd is a cluster of etcd servers in processes of their own.
type Etcd struct {
	*procs.Cluster // nil of servers that another process runs
	dir            string
	at             []string

	mu      sync.Mutex
	clients []*clientv3.Client
}

// StartEtcd starts a cluster with its data below dir, which Close removes.
func StartEtcd(ctx context.Context, dir string, members int) (*Etcd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "etcd-"); err != nil {
		return nil, err
	}
	c, err := procs.Start(ctx, procs.Options{
		Binary: self, Dir: dir, Members: members, Fsync: true,
		Args: []string{"--quota-backend-bytes=8589934592", "--enable-pprof"},
		Env:  []string{asEtcd + "=1", "GOMAXPROCS=" + os.Getenv("GOMAXPROCS")},
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &Etcd{Cluster: c, dir: dir, at: c.Endpoints()}, nil
}

// Connect returns the servers at these addresses, which another process runs.
func Connect(at []string) *Etcd { return &Etcd{at: at} }

// At returns the addresses of the members.
func (e *Etcd) At() []string { return e.at }

// Process returns the client of process i, with connections of its own. Close closes it.
func (e *Etcd) Process(i int) (*clientv3.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.clients) <= i {
		first := len(e.clients) % len(e.at) // spread over the members
		c, err := Dial(append(slices.Clone(e.at[first:]), e.at[:first]...)...)
		if err != nil {
			return nil, err
		}
		e.clients = append(e.clients, c)
	}
	return e.clients[i], nil
}

// Dial returns a client as a service has it.
func Dial(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// Close ends the clients and the servers, and removes their data.
func (e *Etcd) Close() {
	var wg sync.WaitGroup
	for _, c := range e.clients {
		wg.Go(func() { _ = c.Close() })
	}
	wg.Wait()
	if e.Cluster == nil {
		return
	}
	e.Cluster.Close()
	_ = os.RemoveAll(e.dir)
}

// Counters are what the servers have done so far.
type Counters struct {
	Events, Reads float64
	CPU           time.Duration // of the servers' processes
	Received      float64       // messages of clients
}

// Sub returns what was done since before.
func (c Counters) Sub(before Counters) Counters {
	return Counters{c.Events - before.Events, c.Reads - before.Reads, c.CPU - before.CPU, c.Received - before.Received}
}

// Counters reads the servers' metrics, summed over the members.
func (e *Etcd) Counters(ctx context.Context) (Counters, error) {
	var sum Counters
	for _, at := range e.at {
		err := metrics(ctx, at, map[string]func(float64){
			"etcd_debugging_mvcc_events_total": func(v float64) { sum.Events += v },
			"etcd_mvcc_range_total":            func(v float64) { sum.Reads += v },
			"process_cpu_seconds_total":        func(v float64) { sum.CPU += time.Duration(v * float64(time.Second)) },
			"grpc_server_msg_received_total":   func(v float64) { sum.Received += v },
		})
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// Content is what the servers have in memory.
type Content struct {
	Memory  float64 // heap after garbage collection, and stacks, in bytes
	Watches float64
}

// Content has the servers collect their garbage, and reads their metrics, summed over the members.
func (e *Etcd) Content(ctx context.Context) (sum Content, err error) {
	for i := range e.at {
		heap, _, err := e.Heap(ctx, i)
		if err != nil {
			return sum, err
		}
		all, err := e.Metrics(ctx, i)
		if err != nil {
			return sum, err
		}
		sum.Memory += heap + all["go_memstats_stack_inuse_bytes"]
		sum.Watches += all["etcd_debugging_mvcc_watcher_total"]
	}
	return sum, nil
}

// scraper leaves no connection open.
var scraper = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func metrics(ctx context.Context, at string, want map[string]func(float64)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := scraper.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("metrics of %s: %s", at, resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		space := strings.LastIndexByte(lines.Text(), ' ')
		if space < 0 {
			continue
		}
		name, value := lines.Text()[:space], lines.Text()[space+1:]
		name, _, _ = strings.Cut(name, "{") // all labels of a metric together
		if add := want[name]; add != nil {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return fmt.Errorf("metrics of %s: %s: %w", at, name, err)
			}
			add(v)
		}
	}
	return lines.Err()
}

// Fsync returns the median time of a write of 4 KB and its fsync in dir.
func Fsync(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
	const rounds = 51
	var all [rounds]time.Duration
	for i := range all {
		begun := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		all[i] = time.Since(begun)
	}
	return median(all[:]), nil
}
