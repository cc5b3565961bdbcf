package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

// Config says how long a fleet works on a real etcd.
type Config struct {
	Cluster   *procs.Cluster // with Flags
	Processes int
	Pace      Pace
	Work      []time.Duration // before each of the rests
	Rest      time.Duration   // until outcomes have expired, and are compacted
	Profiles  string          // a folder for a heap profile of each rest; none if it is empty
	Say       func(format string, args ...any)
}

// Flags are those of the etcd of a soak: it compacts its history as operations.md says, but more often. A short log of Raft
// in memory keeps the part of etcd's heap small that rises and falls with each snapshot.
func Flags(retention time.Duration) []string {
	return []string{
		"--auto-compaction-mode=periodic", "--auto-compaction-retention=" + retention.String(),
		"--snapshot-count=1000", "--snapshot-catchup-entries=100", "--enable-pprof",
	}
}

// Run has a fleet work and rest, and returns what each rest has found.
func (c Config) Run(ctx context.Context, tally *Tally) (rests []Sample, err error) {
	var all []*Process
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		for _, p := range all {
			_ = p.Close(ctx)
			_ = p.client.Close()
		}
	}()
	for i := range c.Processes {
		client, err := clientv3.New(clientv3.Config{Endpoints: c.Cluster.Endpoints(), DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		p, err := Open(ctx, client, fmt.Sprint("p", i), c.Pace, tally)
		if err != nil {
			_ = client.Close()
			return nil, err
		}
		all = append(all, p)
	}
	for i, length := range c.Work {
		s, err := c.round(ctx, all, length, i)
		if err != nil {
			return rests, err
		}
		rests = append(rests, s)
		c.Say("after %s of work: %s", length.Round(time.Second), s)
	}
	return rests, nil
}

// round has all processes work, and rest.
func (c Config) round(ctx context.Context, all []*Process, length time.Duration, number int) (s Sample, err error) {
	working, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() { p.Work(working, rand.Uint64()) })
	}
	wg.Wait()
	rest := time.NewTimer(c.Rest)
	defer rest.Stop()
	select {
	case <-rest.C:
		return c.sample(ctx, all[0].client, number)
	case <-ctx.Done():
		return s, context.Cause(ctx)
	}
}

// sampleTimeout bounds a sample, on a machine that other work keeps busy.
const sampleTimeout = 5 * time.Minute

// sample measures this process and etcd.
func (c Config) sample(ctx context.Context, client *clientv3.Client, number int) (s Sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	heap, err := c.heap(ctx, number)
	if err != nil {
		return s, err
	}
	metrics, err := c.Cluster.Metrics(ctx, 0)
	if err != nil {
		return s, err
	}
	keys, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return s, err
	}
	leases, err := client.Leases(ctx)
	if err != nil {
		return s, err
	}
	if s, err = c.own(number); err != nil {
		return s, err
	}
	s.Keys, s.Leases, s.Watches = float64(keys.Count), float64(len(leases.Leases)), metrics["etcd_debugging_mvcc_watcher_total"]
	s.EtcdHeap, s.EtcdRSS = heap, metrics["process_resident_memory_bytes"]
	s.EtcdDB = metrics["etcd_mvcc_db_total_size_in_use_in_bytes"]
	return s, nil
}

// looks is how often the heaps are measured at a rest, a second apart: what answers and renewals allocate meanwhile is not
// in the smallest one.
const looks = 5

// heap returns the smallest heap of etcd at a rest, and writes a profile of it.
func (c Config) heap(ctx context.Context, number int) (least float64, err error) {
	for i := range looks {
		heap, profile, err := c.Cluster.Heap(ctx, 0)
		if err == nil && (i == 0 || heap < least) {
			least, err = heap, c.profiled("etcd", number, profile)
		}
		if err != nil {
			return 0, err
		}
		time.Sleep(time.Second)
	}
	return least, nil
}

// own returns the smallest sample of this process at a rest, and writes a profile.
func (c Config) own(number int) (s Sample, err error) {
	for i := range looks {
		if now := OfThisProcess(); i == 0 || now.Heap < s.Heap {
			s = now
		}
		time.Sleep(time.Second)
	}
	var profile bytes.Buffer
	err = pprof.WriteHeapProfile(&profile)
	return s, errors.Join(err, c.profiled("clients", number, profile.Bytes()))
}

// profiled writes a heap profile.
func (c Config) profiled(of string, number int, profile []byte) error {
	if c.Profiles == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(c.Profiles, fmt.Sprintf("%s-%d", of, number)), profile, 0o600)
}
