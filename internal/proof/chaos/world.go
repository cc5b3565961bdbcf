package chaos

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/proof/outcome"
)

// Where things stand in etcd.
const (
	root      = "/chaos/"
	product   = root + "product" // what is under test
	outside   = root + "outside" // touched by harmless requests
	namespace = "run"
)

// The ticks of the members. Three of them and all clients share one machine, maybe
// a busy one: shorter ones would make for elections that nobody caused.
const (
	tick     = 50 * time.Millisecond
	election = 500 * time.Millisecond
)

// World is a cluster of three members and the processes that use it.
type World struct {
	Seed      Seed
	Cluster   *embedtest.Cluster
	Processes []*Process
	Gates     []keyspace.Gate // the queues in use
	Space     keyspace.Space
	Prefix    string
	Auth      bool // authentication is on, with short-lived tokens
	Stats     *Stats
	Recorder  *history.Recorder

	user, password string
	members        int
	pinned         []*embedtest.Client // one per member
	tap            *history.Tap
	open           func(context.Context, *Process, *embedtest.Client) (Session, error)
	writes         atomic.Int64 // to registers in etcd
	arms           atomic.Int64 // harms that could be late, so far
	ids            []uint64     // member IDs
	log            func(format string, args ...any)

	life context.Context // of the whole run
	end  context.CancelFunc

	mu       sync.Mutex
	claimed  map[int]bool // processes whose network is taken
	electing int
	elected  time.Time
	doubted  []string
}

// newWorld starts the cluster and the processes that the seed asks for.
func newWorld(ctx context.Context, seed Seed, etcdLog *zap.Logger, log func(string, ...any)) (w *World, err error) {
	r := seed.Stream("world")
	w = &World{
		Seed: seed, Prefix: product, members: 3, Auth: r.IntN(3) == 0,
		open: openKit, Stats: newStats(), Recorder: history.NewRecorder(), log: log, claimed: map[int]bool{},
	}
	w.life, w.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.Space, err = keyspace.New(product, namespace); err != nil {
		return nil, err
	}
	if w.Cluster, err = embedtest.New(ctx, &embedtest.Options{
		Members: w.members, Tick: tick, Election: election, AuthTokenTTL: tokenTTL, Logger: etcdLog,
	}); err != nil {
		return nil, err
	}
	if w.Auth {
		w.user, w.password = "app", "secret"
		if err := w.Cluster.AddUser(ctx, w.user, w.password, root); err != nil {
			return nil, err
		}
		if err := w.Cluster.EnableAuth(ctx, "root", "secret"); err != nil {
			return nil, err
		}
	}
	for i := range w.members {
		c, err := w.Cluster.Dial(ctx, &embedtest.ClientOptions{Endpoints: w.Cluster.Endpoints()[i : i+1]})
		if err != nil {
			return nil, err
		}
		resp, err := c.Get(ctx, outside)
		if err != nil {
			return nil, err
		}
		w.pinned = append(w.pinned, c)
		w.ids = append(w.ids, resp.Header.GetMemberId())
	}
	if w.tap, err = history.StartTap(ctx, w.Recorder, w.Space.Root(), w.observers()...); err != nil {
		return nil, err
	}
	for i := range 6 + r.IntN(3) {
		p := &Process{World: w, Name: fmt.Sprintf("p%d", i)}
		p.rec = w.Recorder.Client(p.Name)
		p.plan.ttl = time.Duration(2+r.IntN(2)) * time.Second
		// Half of the TTL, or a second: more than an election takes.
		p.plan.margin = min(p.plan.ttl/2, time.Second)
		if r.IntN(2) == 0 {
			m := r.IntN(w.members)
			p.plan.endpoints = w.Cluster.Endpoints()[m : m+1]
		}
		w.Processes = append(w.Processes, p)
		if err := p.open(ctx); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// observers are clients of one member each.
func (w *World) observers() (all []*clientv3.Client) {
	for _, c := range w.pinned {
		all = append(all, c.Client)
	}
	return all
}

// close ends everything.
func (w *World) close() {
	w.end()
	if w.tap != nil {
		w.tap.Close()
	}
	if w.Cluster != nil {
		_ = w.Cluster.Close()
	}
}

// Admin returns a client that may do everything and that no nemesis touches.
func (w *World) Admin() *clientv3.Client { return w.Cluster.Client() }

// Members returns the number of members.
func (w *World) Members() int { return w.members }

// answers tells whether a member answers a read in time: one that a majority has
// to agree to, or one from its own memory.
func (w *World) answers(ctx context.Context, member int, agreed bool) bool {
	ctx, cancel := context.WithTimeout(ctx, election)
	defer cancel()
	var opts []clientv3.OpOption
	if !agreed {
		opts = append(opts, clientv3.WithSerializable())
	}
	_, err := w.pinned[member].Get(ctx, outside, opts...)
	return err == nil
}

// claim reserves a process for a nemesis that breaks its network: the wanted one,
// or the next that is free.
func (w *World) claim(wanted int) (*Process, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.claimed[wanted] {
		wanted = (wanted + 1) % len(w.Processes)
	}
	w.claimed[wanted] = true
	return w.Processes[wanted], func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.claimed, wanted)
	}
}

// mend repeats what undoes a harm until it succeeds. If it never does, the run can
// tell nothing about liveness.
func (w *World) mend(what string, undo func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var last error
	for {
		call, cancel := context.WithTimeout(ctx, 15*time.Second)
		err := undo(call)
		cancel()
		if err == nil {
			return
		}
		last = err
		if sleep(ctx, 50*time.Millisecond) != nil {
			break
		}
	}
	w.doubt("could not mend %s: %v", what, last)
	w.note("cannot mend %s: %v", what, last)
}

// arm returns a condition for a Txn that does harm, and what takes it away: until then the
// harm may come, even if its answer was lost, and after that it cannot. So it is mended for
// good.
func (w *World) arm(ctx context.Context, harm string) (armed clientv3.Cmp, disarm func(context.Context) error, err error) {
	key := fmt.Sprintf("%sarmed/%s/%d", root, harm, w.arms.Add(1))
	_, err = w.Admin().Put(ctx, key, "")
	return clientv3.Compare(clientv3.CreateRevision(key), ">", 0), func(ctx context.Context) error {
		_, err := w.Admin().Delete(ctx, key)
		return err
	}, err
}

// doubt notes why the run tells nothing, or not all.
func (w *World) doubt(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubted = append(w.doubted, fmt.Sprintf(format, args...))
}

// note tells whoever watches the run.
func (w *World) note(format string, args ...any) { w.log(format, args...) }

// trouble notes that a nemesis could not do its harm.
func (w *World) trouble(format string, args ...any) {
	if w.life.Err() == nil {
		w.note("no harm done: "+format, args...)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errNoSession = fmt.Errorf("chaos: the process has no session now: %w", outcome.ErrNotTried)
