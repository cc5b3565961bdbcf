package work

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/servers"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

// asWorker is the variable by which the program runs itself as one process of a crowd.
const asWorker = "ETCDKIT_BENCH_WORKER"

// job is what a worker is told.
type job struct {
	At    []string // the servers
	Name  string   // of the lock
	Lock  string   // its name, one of mutexes
	First int      // the first of At to use
	Limit int
	Hold  time.Duration
}

// mutexes are the locks that workers have, by their names.
var mutexes = map[string]Lock{Mutex().Name: Mutex(), EtcdMutex().Name: EtcdMutex()}

// tally is a line that a worker writes: how many operations it has finished so far.
type tally struct {
	At   int64 // Unix time in nanoseconds
	Done int64
}

// Main runs the process as a worker if it was started as one; then it does not return. Call it first
// in main and TestMain, with servers.Main.
func Main() {
	if text := os.Getenv(asWorker); text != "" {
		if err := worker(text, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stdout, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// worker works until its standard input ends.
func worker(text string, stdin io.Reader, stdout io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	lock := mutexes[j.Lock]
	if lock.open == nil {
		return fmt.Errorf("there is no lock %q", j.Lock)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	at := append(append([]string{}, j.At[j.First:]...), j.At[:j.First]...)
	e := &Env{Etcd: servers.Connect(at)}
	defer e.Etcd.Close()
	acquire, end, err := lock.open(ctx, e, 0, j.Name, j.Limit)
	if err != nil {
		return err
	}
	defer end()
	var done atomic.Int64
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for enc := json.NewEncoder(stdout); after(20*time.Millisecond)(ctx) == nil; {
			_ = enc.Encode(tally{time.Now().UnixNano(), done.Load()})
		}
	})
	for ctx.Err() == nil {
		release, err := acquire(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			cancel()
			return err
		}
		time.Sleep(j.Hold)
		if err := release(context.WithoutCancel(ctx)); err != nil {
			cancel()
			return err
		}
		done.Add(1)
	}
	return nil
}

// Workers has a crowd of real processes, with a caller each, work with a lock.
func (e *Env) Workers(id, dir string, l Lock, w Crowd) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		s, err := e.workers(ctx, dir, l, w)
		return []measure.Sample{s}, err
	}}
}

func (e *Env) workers(ctx context.Context, dir string, l Lock, w Crowd) (sample measure.Sample, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if dir, err = os.MkdirTemp(dir, "workers-"); err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	name := name()
	logs := make([]string, w.Processes)
	var all []*procs.Process
	defer func() {
		ends := make([]error, len(all))
		var wg sync.WaitGroup
		for i, p := range all {
			wg.Go(func() { ends[i] = p.Quit(settle) })
		}
		wg.Wait()
		err = errors.Join(append(ends, err)...)
	}()
	for i := range logs {
		text, err := json.Marshal(job{At: e.Etcd.At(), Name: name, Lock: l.Name, First: i % len(e.Etcd.At()), Limit: w.Limit, Hold: w.Hold})
		if err != nil {
			return nil, err
		}
		logs[i] = filepath.Join(dir, fmt.Sprint(i))
		p, err := procs.Run(procs.Command{Name: fmt.Sprint("worker ", i), Path: self, Env: []string{asWorker + "=" + string(text)}, Log: logs[i]})
		if err != nil {
			return nil, err
		}
		all = append(all, p)
		go func() { // a worker that ends by itself ends the cell
			select {
			case <-p.Done():
				cancel(fmt.Errorf("worker %d has ended: %s", i, p.Tail(500)))
			case <-ctx.Done():
			}
		}()
	}
	if err := e.inQueue(ctx, l.queue(name), int64((w.Processes-w.Limit)*9/10)); err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	if err := after(min(e.For, time.Second))(ctx); err != nil {
		return nil, err
	}
	before, err := e.Etcd.Counters(ctx)
	if err != nil {
		return nil, err
	}
	from := time.Now()
	if err := e.untilEnough(ctx, logs, from); err != nil {
		return nil, err
	}
	to := time.Now()
	later, err := e.Etcd.Counters(ctx)
	if err != nil {
		return nil, err
	}
	if err := after(100 * time.Millisecond)(ctx); err != nil { // the last lines
		return nil, err
	}
	done, err := countedAll(logs, from, to)
	if err != nil {
		return nil, err
	}
	sample = measure.Sample{measure.Rate: float64(done) / to.Sub(from).Seconds()}
	fromEtcd(sample, later.Sub(before), done)
	return sample, nil
}

// untilEnough waits for Env.For, and as [Env.window] for up to five times as long if the workers have
// finished fewer operations than make a rate.
func (e *Env) untilEnough(ctx context.Context, logs []string, from time.Time) error {
	err := after(e.For)(ctx)
	for err == nil && time.Since(from) < 5*e.For {
		done, failed := countedAll(logs, from, time.Now())
		if failed != nil || done >= enough {
			return failed
		}
		err = after(e.For / 10)(ctx)
	}
	return err
}

// countedAll returns how many operations the workers have finished between two times.
func countedAll(logs []string, from, to time.Time) (all int64, err error) {
	for _, log := range logs {
		n, err := counted(log, from, to)
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}

// counted returns how many operations a worker has finished between two times, by its lines.
func counted(log string, from, to time.Time) (int64, error) {
	f, err := os.Open(log)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	var first, last int64
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadString('\n')
		if err != nil { // the end, or a line that is being written
			return last - first, nil
		}
		var t tally
		if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &t) != nil {
			return 0, errors.New(strings.TrimSpace(line)) // a worker's error
		}
		if t.At <= from.UnixNano() {
			first = t.Done
		}
		if t.At <= to.UnixNano() {
			last = t.Done
		}
	}
}
