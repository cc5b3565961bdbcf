package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// Clusters are the sizes of cluster that `make scaling` measures, by the names of their tables.
var Clusters = map[int]string{1: "one member", 3: "three members"}

// The rows of `make scaling`, after the name of the cluster.
const (
	FreePermits   = "acquire and release, a name for each of 64 callers"
	HotName       = "acquire and release, one name, limit 10, 64 processes, 10 ms of work"
	NewRequests   = "new requests, 512 in flight"
	Ticks         = "ticks, each by one of 8 processes"
	Sessions      = "sessions opened and closed, 64 at a time"
	Renewals      = "renewals alone, on 64 streams"
	IdleProcesses = "idle sessions, 300 with a connection each" // IdleSessions of them

	Connected = "a session with a connection of its own"
	Held      = "a permit that is held"
	Waiting   = "a request that waits, in its process's one queue"
	Outcome   = "an outcome of 200 bytes"
	Semaphore = "a name that was used once"
)

// IdleSessions is how many idle sessions there are.
const IdleSessions = 300

// ForScaling returns the groups of `make scaling`: what one cluster can do, and what each session, permit and outcome
// takes of it.
func ForScaling(s Setup) (groups []measure.Group) {
	for _, members := range []int{1, 3} {
		kind := Clusters[members]
		id := func(row string) string { return kind + ": " + row }
		groups = append(groups, measure.Group{Name: kind, Cells: s.on(members, func(e *Env) []measure.Cell {
			return []measure.Cell{
				e.Names(id(FreePermits), 8, 8),
				e.Cell(id(HotName), Ours("ours", nil), Crowd{Processes: 64, Limit: 10, Hold: 10 * time.Millisecond}),
				e.Requests(id(NewRequests), 512),
				e.Ticks(id(Ticks), 8, 128),
				e.Sessions(id(Sessions), 64),
				e.Renewals(id(Renewals), 64),
			}
		})}, measure.Group{Name: kind + ", idle", Rounds: 1, Cells: s.on(members, func(e *Env) []measure.Cell {
			return []measure.Cell{e.Idle(id(IdleProcesses), IdleSessions)}
		})})
	}
	const kind = "one more"
	groups = append(groups, measure.Group{Name: kind, Rounds: 1, Cells: s.on(1, func(e *Env) (cells []measure.Cell) {
		for _, m := range things {
			cells = append(cells, e.Grows(kind+": "+m.name, m.n, m.grow))
		}
		return cells
	})})
	return groups
}

// Names has callers acquire and release free permits, each of a name of its own.
func (e *Env) Names(id string, processes, callers int) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) (_ []measure.Sample, err error) {
		sessions, closing, err := e.sessions(ctx, processes)
		defer closing()
		if err != nil {
			return nil, err
		}
		var ops []op
		for i := range processes * callers {
			sem, err := concurrency.NewSemaphore(sessions[i%processes], fmt.Sprint("work-", i), 1, nil)
			if err != nil {
				return nil, err
			}
			ops = append(ops, func(ctx context.Context, c *caller) error {
				asked := time.Now()
				p, err := sem.Acquire(ctx)
				if err != nil {
					return err
				}
				c.wait(time.Since(asked))
				return p.Release(context.WithoutCancel(ctx))
			})
		}
		s, err := e.drive(ctx, ops, after(min(e.For/2, 300*time.Millisecond)))
		return []measure.Sample{s}, err
	}}
}

// sessions opens a session in each of the first processes, in one namespace.
func (e *Env) sessions(ctx context.Context, processes int) (all []*concurrency.Session, closing func(), err error) {
	ns := name()
	all = make([]*concurrency.Session, processes)
	errs := make([]error, processes)
	each(processes, func(i int) { all[i], errs[i] = e.session(ctx, i, ns) })
	return all, func() {
		each(processes, func(i int) {
			if all[i] != nil {
				end(all[i].Close)
			}
		})
	}, errors.Join(errs...)
}

// each calls fn for each of n, up to 64 at a time.
func each(n int, fn func(i int)) {
	var wg sync.WaitGroup
	some := make(chan struct{}, 64)
	for i := range n {
		some <- struct{}{}
		wg.Go(func() { fn(i); <-some })
	}
	wg.Wait()
}

// Ticks has jobs come to one fire time after the other, each in all processes at once. One operation is one tick.
func (e *Env) Ticks(id string, processes, jobs int) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		sessions, closing, err := e.sessions(ctx, processes)
		defer closing()
		if err != nil {
			return nil, err
		}
		var lockers []*schedlock.Locker
		for _, s := range sessions {
			l, err := schedlock.New(s, nil)
			if err != nil {
				return nil, err
			}
			lockers = append(lockers, l)
		}
		begun := time.Now().Add(-time.Hour)
		var ops []op
		for j := range jobs {
			var next atomic.Int64
			ops = append(ops, func(ctx context.Context, c *caller) error {
				tick := begun.Add(time.Duration(next.Add(1)) * 10 * time.Millisecond)
				asked := time.Now()
				errs := make([]error, len(lockers))
				var wg sync.WaitGroup
				for i, l := range lockers {
					wg.Go(func() {
						_, errs[i] = l.Do(ctx, fmt.Sprint("job-", j), func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(tick))
					})
				}
				wg.Wait()
				c.wait(time.Since(asked))
				return errors.Join(errs...)
			})
		}
		// The first tick of a job in a process costs more.
		var unmeasured caller
		unmeasured.on = new(atomic.Bool)
		errs := make([]error, jobs)
		each(jobs, func(j int) { errs[j] = ops[j](ctx, &unmeasured) })
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		s, err := e.drive(ctx, ops, after(min(e.For/2, 300*time.Millisecond)))
		return []measure.Sample{s}, err
	}}
}

// Sessions opens sessions and closes them, on eight connections.
func (e *Env) Sessions(id string, callers int) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		ns := name()
		ops := make([]op, callers)
		for i := range ops {
			ops[i] = func(ctx context.Context, c *caller) error {
				asked := time.Now()
				s, err := e.session(ctx, i%8, ns)
				if err != nil {
					return err
				}
				c.wait(time.Since(asked))
				return s.Close(context.WithoutCancel(ctx))
			}
		}
		s, err := e.drive(ctx, ops, after(min(e.For/2, 300*time.Millisecond)))
		return []measure.Sample{s}, err
	}}
}

// Renewals renews leases without a pause: each stream has one lease, and the next renewal follows the answer.
func (e *Env) Renewals(id string, streams int) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ops := make([]op, streams)
		for i := range ops {
			client, err := e.Etcd.Process(i % 8)
			if err != nil {
				return nil, err
			}
			lease, err := client.Grant(ctx, 3600)
			if err != nil {
				return nil, err
			}
			defer end(func(ctx context.Context) error { _, err := client.Revoke(ctx, lease.ID); return err })
			stream, err := etcdserverpb.NewLeaseClient(client.ActiveConnection()).LeaseKeepAlive(ctx)
			if err != nil {
				return nil, err
			}
			ops[i] = func(_ context.Context, c *caller) error {
				asked := time.Now()
				if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(lease.ID)}); err != nil {
					return err
				}
				_, err := stream.Recv()
				c.wait(time.Since(asked))
				return err
			}
		}
		s, err := e.drive(ctx, ops, after(min(e.For/2, 300*time.Millisecond)))
		return []measure.Sample{s}, err
	}}
}

// idleFor is how long idle sessions are watched: a renewal comes every 5 s, and a list about every 15 s.
const idleFor = 15 * time.Second

// Idle opens sessions that do nothing, and returns what their servers do for all of them, a second.
func (e *Env) Idle(id string, processes int) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		window := min(idleFor, 15*e.For)
		used := func() (measure.Sample, error) {
			before, err := e.Etcd.Counters(ctx)
			if err != nil {
				return nil, err
			}
			if err := after(window)(ctx); err != nil {
				return nil, err
			}
			later, err := e.Etcd.Counters(ctx)
			sum := later.Sub(before)
			return measure.Sample{measure.Received: sum.Received / window.Seconds(), measure.ServerCPU: float64(sum.CPU.Microseconds()) / window.Seconds()}, err
		}
		without, err := used()
		if err != nil {
			return nil, err
		}
		_, closing, err := e.sessions(ctx, processes)
		defer closing()
		if err == nil {
			err = after(min(e.For, time.Second))(ctx)
		}
		if err != nil {
			return nil, err
		}
		s, err := used()
		if err != nil {
			return nil, err
		}
		s[measure.Received] -= without[measure.Received]
		if s[measure.Received] > 0 {
			s[measure.ServerCPU] = max(0, s[measure.ServerCPU]-without[measure.ServerCPU]) / s[measure.Received]
		}
		return []measure.Sample{s}, nil
	}}
}
