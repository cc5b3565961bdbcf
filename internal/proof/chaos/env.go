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

// The prefixes in etcd.
const (
	root      = "/chaos/"
	product   = root + "product" // what is under test
	outside   = root + "outside" // touched by harmless requests
	namespace = "run"
)

// The ticks of the members. Three of them and all clients share one machine, maybe
// a busy one: shorter ones would cause elections that no nemesis explains.
const (
	tick     = 50 * time.Millisecond
	election = 500 * time.Millisecond
)

// Env is a cluster of three members and the processes that use it.
type Env struct {
	Seed      Seed
	Cluster   *embedtest.Cluster
	Processes []*Process
	Queues    []keyspace.Queue // the queues in use
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
	brackets       brackets

	life context.Context // of the whole run
	end  context.CancelFunc

	mu       sync.Mutex
	claimed  map[int]bool // processes whose network is taken
	electing int
	elected  time.Time
	doubted  []string
}

// newEnv starts the cluster and the processes that the seed asks for.
func newEnv(ctx context.Context, seed Seed, etcdLog *zap.Logger, log func(string, ...any)) (env *Env, err error) {
	r := seed.Stream("world") // the name is part of what a seed means
	env = &Env{
		Seed: seed, Prefix: product, members: 3, Auth: r.IntN(3) == 0,
		open: openKit, Stats: newStats(), Recorder: history.NewRecorder(), log: log, claimed: map[int]bool{},
	}
	env.life, env.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			env.close()
		}
	}()
	if env.Space, err = keyspace.New(product, namespace); err != nil {
		return nil, err
	}
	if env.Cluster, err = embedtest.New(ctx, &embedtest.Options{
		Members: env.members, HeartbeatInterval: tick, ElectionTimeout: election, AuthTokenTTL: tokenTTL, Logger: etcdLog,
	}); err != nil {
		return nil, err
	}
	if env.Auth {
		env.user, env.password = "app", "secret"
		if err := env.Cluster.AddUser(ctx, env.user, env.password, root); err != nil {
			return nil, err
		}
		if err := env.Cluster.EnableAuth(ctx, "root", "secret"); err != nil {
			return nil, err
		}
	}
	for i := range env.members {
		c, err := env.Cluster.Dial(ctx, &embedtest.ClientOptions{Endpoints: env.Cluster.Endpoints()[i : i+1]})
		if err != nil {
			return nil, err
		}
		resp, err := c.Get(ctx, outside)
		if err != nil {
			return nil, err
		}
		env.pinned = append(env.pinned, c)
		env.ids = append(env.ids, resp.Header.GetMemberId())
	}
	if env.tap, err = history.StartTap(ctx, env.Recorder, env.Space.Root(), env.observers()...); err != nil {
		return nil, err
	}
	for i := range 6 + r.IntN(3) {
		p := &Process{Env: env, Name: fmt.Sprintf("p%d", i)}
		p.rec = env.Recorder.Client(p.Name)
		p.plan.ttl = time.Duration(2+r.IntN(2)) * time.Second
		// Half of the TTL, or a second: more than an election takes.
		p.plan.margin = min(p.plan.ttl/2, time.Second)
		if r.IntN(2) == 0 {
			m := r.IntN(env.members)
			p.plan.endpoints = env.Cluster.Endpoints()[m : m+1]
		}
		env.Processes = append(env.Processes, p)
		if err := p.open(ctx); err != nil {
			return nil, err
		}
	}
	return env, nil
}

// observers are clients of one member each.
func (env *Env) observers() (all []*clientv3.Client) {
	for _, c := range env.pinned {
		all = append(all, c.Client)
	}
	return all
}

// close ends everything.
func (env *Env) close() {
	env.end()
	if env.tap != nil {
		env.tap.Close()
	}
	if env.Cluster != nil {
		_ = env.Cluster.Close()
	}
}

// Admin returns a client that may do everything and that no nemesis touches.
func (env *Env) Admin() *clientv3.Client { return env.Cluster.Client() }

// Members returns the number of members.
func (env *Env) Members() int { return env.members }

// answers reports whether a member answers a read in time: one that a majority has
// to agree to, or one from its own memory.
func (env *Env) answers(ctx context.Context, member int, agreed bool) bool {
	ctx, cancel := context.WithTimeout(ctx, election)
	defer cancel()
	var opts []clientv3.OpOption
	if !agreed {
		opts = append(opts, clientv3.WithSerializable())
	}
	_, err := env.pinned[member].Get(ctx, outside, opts...)
	return err == nil
}

// claim reserves a process for a nemesis that breaks its network: the wanted one, or the next that is free. There is
// none while another nemesis has all.
func (env *Env) claim(wanted int) (p *Process, free func()) {
	env.mu.Lock()
	defer env.mu.Unlock()
	for range env.Processes {
		if !env.claimed[wanted] {
			return env.Processes[wanted], env.reserve(wanted)
		}
		wanted = (wanted + 1) % len(env.Processes)
	}
	return nil, func() {}
}

// claimAll reserves all processes that are free.
func (env *Env) claimAll() (all []*Process, free func()) {
	env.mu.Lock()
	defer env.mu.Unlock()
	var which []int
	for i, p := range env.Processes {
		if !env.claimed[i] {
			all, which = append(all, p), append(which, i)
		}
	}
	return all, env.reserve(which...)
}

// reserve reserves processes until free is called. env.mu is held.
func (env *Env) reserve(which ...int) (free func()) {
	for _, i := range which {
		env.claimed[i] = true
	}
	return func() {
		env.mu.Lock()
		defer env.mu.Unlock()
		for _, i := range which {
			delete(env.claimed, i)
		}
	}
}

// mend repeats what undoes a harm until it succeeds. If it never does, the run says nothing
// about liveness.
func (env *Env) mend(what string, undo func(context.Context) error) {
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
		if Sleep(ctx, 50*time.Millisecond) != nil {
			break
		}
	}
	env.doubt("could not mend %s: %v", what, last)
	env.note("cannot mend %s: %v", what, last)
}

// arm returns a condition for a Txn that does harm, and what takes it away: until then the
// harm may come, even if its answer was lost, and after that it cannot. So it is mended for
// good.
func (env *Env) arm(ctx context.Context, harm string) (armed clientv3.Cmp, disarm func(context.Context) error, err error) {
	key := fmt.Sprintf("%sarmed/%s/%d", root, harm, env.arms.Add(1))
	_, err = env.Admin().Put(ctx, key, "")
	return clientv3.Compare(clientv3.CreateRevision(key), ">", 0), func(ctx context.Context) error {
		_, err := env.Admin().Delete(ctx, key)
		return err
	}, err
}

// doubt notes why the run cannot be judged, or not fully.
func (env *Env) doubt(format string, args ...any) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.doubted = append(env.doubted, fmt.Sprintf(format, args...))
}

// note writes a line of progress.
func (env *Env) note(format string, args ...any) { env.log(format, args...) }

// trouble notes that a nemesis could not do its harm.
func (env *Env) trouble(format string, args ...any) {
	if env.life.Err() == nil {
		env.note("no harm done: "+format, args...)
	}
}

// Sleep waits for d or until ctx is done, and then returns its error.
func Sleep(ctx context.Context, d time.Duration) error {
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
