package chaos

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// AttachConfig says how a process takes part in a run on a cluster that another process has
// started, and may break.
type AttachConfig struct {
	Seed     Seed
	Recorder *history.Recorder
	Log      func(format string, args ...any)

	// Of the sessions of a client process; without Names it has none.
	Names       []string // unique in the run
	Cluster     *embedtest.Cluster
	TTL, Margin time.Duration
	AllowProxy  bool // the cluster is behind etcd's gRPC proxy
}

// Attach returns an Env that has started nothing: with processes that have no session
// yet, one for each name, or with none, to do harm.
func Attach(c AttachConfig) (*Env, error) {
	space, err := keyspace.New(product, namespace)
	if err != nil {
		return nil, err
	}
	env := &Env{
		Seed: c.Seed, Cluster: c.Cluster, Recorder: c.Recorder, Prefix: product, Space: space,
		open: openKit, Stats: newStats(), log: c.Log, claimed: map[int]bool{},
	}
	env.life, env.end = context.WithCancel(context.Background())
	for _, name := range c.Names {
		p := &Process{Env: env, Name: name, rec: c.Recorder.Client(name)}
		p.plan.ttl, p.plan.margin, p.plan.proxied = c.TTL, c.Margin, c.AllowProxy
		env.Processes = append(env.Processes, p)
	}
	return env, nil
}

// Work has the processes use the workloads until ctx ends, each under the
// eyes of its monitor, and returns when all operations have returned. A process
// without a session gets one.
func (env *Env) Work(ctx context.Context, workloads []Workload, rate int) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, p := range env.Processes {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = p.open(ctx) // if it has none
				_ = Sleep(ctx, 50*time.Millisecond)
			}
		})
		wg.Go(func() { p.monitorLease(ctx) })
		wg.Go(func() { env.watchStalls(ctx, p.Name) })
	}
	env.work(ctx, workloads, rate)
}

// Harm has nemeses strike by the seed's schedule until ctx ends. When it returns, all
// is mended.
func (env *Env) Harm(ctx context.Context, nemeses []Nemesis) {
	env.harm(ctx, newSchedule(env.Seed, nemeses))
}

// Probe uses all workloads from all processes, which must work, and returns what does
// not.
func (env *Env) Probe(ctx context.Context, workloads []Workload) []string {
	return env.probe(ctx, workloads)
}

// Leave closes all sessions. It returns what went wrong.
func (env *Env) Leave(ctx context.Context) (findings []string) {
	for _, p := range env.Processes {
		if err := p.close(ctx); err != nil {
			findings = append(findings, p.Name+": close: "+err.Error())
		}
	}
	return slices.Concat(findings, leftGoroutines(), env.brackets.wrong())
}
