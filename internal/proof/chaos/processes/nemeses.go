package processes

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"slices"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/chaos"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Acts that the history declares for checkers: guarantees except what etcd does
// when a stopped leader continues; and a killed or stopped client need not return calls.
const (
	LeaderStopped = "leader stopped" // for longer than a TTL
	LeaderResumed = "leader resumed" // after that
	ClientKilled  = "client killed"
	ClientPaused  = "client paused"
)

// margin is that of all sessions: it covers an election.
const margin = time.Second

// short is for how long a server may be stopped at most without etcd's taking a live
// lease for expired: renewals come every third of a TTL, so more than that is left.
const short = 900 * time.Millisecond

// What a run counts, besides what package check does.
const (
	effectLeaders     = "leader changes"
	effectCompactions = "compactions"
	serversKilled     = "servers killed"
	serversPaused     = "servers paused"  // for less than what would make them forget renewals
	leadersStopped    = "leaders stopped" // for longer than the TTL
	followersStopped  = "followers stopped"
	disksSlowed       = "disks slowed"
	proxiesKilled     = "proxies killed"
	proxiesStopped    = "proxies stopped"
	earlyDeletions    = "early deletions" // see Early
	clientsKilled     = "clients killed"
	clientsPaused     = "clients paused"
	permitsOutlived   = "permits lost to pauses" // see Pauses
	attemptsKilled    = "attempts killed"        // see Kills
)

// StopLeader is the name of the nemesis that a run begins with. SlowDisks needs strace.
const (
	StopLeader = "stop-leader"
	SlowDisks  = "slow-disks"
)

// echo is for how long a leader that was stopped may end leases when it continues. It
// takes sixteen at a time: if those are lost with its leadership, it takes the next,
// and gives them to its successor, when etcd's bound on a request has passed, which is
// 5 s and two elections.
const echo = 8 * time.Second

// nemeses strike the processes. Without its effect a run that asked for one is void.
var nemeses = []struct {
	name, effect string
	strike       func(*run, context.Context, *rand.Rand) int
}{
	{"kill-server", serversKilled, (*run).killServer},
	{"kill-all-servers", serversKilled, (*run).killAllServers},
	{"pause-server", serversPaused, (*run).pauseServer},
	{StopLeader, earlyDeletions, (*run).stopLeader},
	{"stop-follower", followersStopped, (*run).stopFollower},
	{SlowDisks, disksSlowed, (*run).slowDisks},
	{killProxy, proxiesKilled, (*run).killProxy},
	{stopProxy, proxiesStopped, (*run).stopProxy},
	{"move-leader", effectLeaders, (*run).moveLeader},
	{"kill-clients", clientsKilled, (*run).killClients},
	{"pause-client", permitsOutlived, (*run).pauseClient},
	{"compaction", effectCompactions, (*run).compaction},
}

// Nemeses returns the names of all nemeses that can strike here.
func Nemeses() (names []string) {
	for _, n := range nemeses {
		if n.name != SlowDisks || canTrace() {
			names = append(names, n.name)
		}
	}
	return names
}

// strikers returns the nemeses that the run asks for.
func (r *run) strikers() (all []chaos.Nemesis) {
	for _, n := range nemeses {
		if slices.Contains(r.Nemeses, n.name) {
			all = append(all, chaos.Nemesis{Name: n.name, Strike: func(ctx context.Context, _ *chaos.Env, rnd *rand.Rand) int {
				return n.strike(r, ctx, rnd)
			}})
		}
	}
	return all
}

// victim draws a server: the leader as often as not.
func (r *run) victim(ctx context.Context, rnd *rand.Rand) int {
	i, leader := rnd.IntN(servers), rnd.IntN(2) == 0
	if now := r.cluster.Leader(ctx); leader && now >= 0 {
		return now
	}
	return i
}

// take reserves a server for one nemesis: of two at the same time, only one kills or
// stops it.
func (r *run) take(servers ...int) (free func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range servers {
		if r.taken[i] {
			return nil, false
		}
	}
	for _, i := range servers {
		r.taken[i] = true
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, i := range servers {
			r.taken[i] = false
		}
	}, true
}

// killServer kills one server and starts it again on what it had written.
func (r *run) killServer(ctx context.Context, rnd *rand.Rand) int {
	return r.killServers(ctx, r.victim(ctx, rnd))
}

// killAllServers leaves no server, at once.
func (r *run) killAllServers(ctx context.Context, _ *rand.Rand) int {
	return r.killServers(ctx, 0, 1, 2)
}

func (r *run) killServers(ctx context.Context, victims ...int) int {
	free, ok := r.take(victims...)
	if !ok {
		return 0
	}
	defer free()
	for _, i := range victims {
		r.cluster.Crash(i)
	}
	r.recorder.Count(serversKilled, int64(len(victims)))
	<-ctx.Done()
	r.mend("servers", func(ctx context.Context) error { return r.cluster.Restart(ctx, victims...) })
	return len(victims)
}

// pauseServer stops a server again and again, each time for less than what would make
// it forget renewals.
func (r *run) pauseServer(ctx context.Context, rnd *rand.Rand) (paused int) {
	for {
		i, d := r.victim(ctx, rnd), time.Duration(100+rnd.IntN(int(short/time.Millisecond)-100))*time.Millisecond
		if free, ok := r.take(i); ok {
			if r.cluster.Member(i).Pause() == nil {
				time.Sleep(d)
				_ = r.cluster.Member(i).Resume()
				r.recorder.Count(serversPaused, 1)
				paused++
			}
			free()
		}
		if chaos.Sleep(ctx, time.Duration(500+rnd.IntN(1000))*time.Millisecond) != nil {
			return paused
		}
	}
}

// stopLeader stops the leader until every lease that it knows of has run out, while
// its successor renews them, and continues it.
func (r *run) stopLeader(ctx context.Context, _ *rand.Rand) int {
	i := r.cluster.Leader(ctx)
	if i < 0 {
		return 0
	}
	free, ok := r.take(i)
	if !ok {
		return 0
	}
	defer free()
	leader := r.cluster.Member(i)
	if err := leader.Pause(); err != nil {
		return 0
	}
	goesOn := r.recorder.Begin(history.Event{Name: LeaderStopped})
	time.Sleep(r.TTL + 500*time.Millisecond)
	successor := r.cluster.Leader(r.life)
	time.AfterFunc(echo, r.recorder.Begin(history.Event{Name: LeaderResumed}))
	_ = leader.Resume()
	goesOn()
	if successor < 0 {
		return 0 // it leads still: no other member could
	}
	r.recorder.Count(leadersStopped, 1)
	return 1
}

// stopFollower stops a server that does not lead, for as long as the nemesis strikes: clients have calls, watches
// and renewals there.
func (r *run) stopFollower(ctx context.Context, rnd *rand.Rand) int {
	leader := r.cluster.Leader(ctx)
	i := (leader + 1 + rnd.IntN(servers-1)) % servers
	if leader < 0 {
		return 0
	}
	free, ok := r.take(i)
	if !ok {
		return 0
	}
	defer free()
	if r.cluster.Member(i).Pause() != nil {
		return 0
	}
	<-ctx.Done()
	_ = r.cluster.Member(i).Resume()
	r.recorder.Count(followersStopped, 1)
	return 1
}

// slowDisks has each write to the disk of each server take longer.
func (r *run) slowDisks(ctx context.Context, rnd *rand.Rand) (slowed int) {
	all := []int{0, 1, 2}
	free, ok := r.take(all...) // a server that is traced cannot be stopped
	if !ok {
		return 0
	}
	defer free()
	heal, err := r.cluster.SlowDisks(time.Duration(100+rnd.IntN(300))*time.Millisecond, all...)
	if err != nil {
		r.note("slow disks: %v", err)
		return 0
	}
	<-ctx.Done()
	heal()
	r.recorder.Count(disksSlowed, 1)
	return 1
}

// canTrace reports whether the disks of servers can be slowed.
func canTrace() bool {
	_, err := exec.LookPath("strace")
	return err == nil
}

// moveLeader hands leadership from one to the next.
func (r *run) moveLeader(ctx context.Context, rnd *rand.Rand) (moved int) {
	for {
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		if r.cluster.MoveLeader(call, rnd.IntN(servers)) == nil {
			moved++
		}
		cancel()
		if chaos.Sleep(ctx, time.Duration(200+rnd.IntN(800))*time.Millisecond) != nil {
			return moved
		}
	}
}

// killClients kills clients, one after the other.
func (r *run) killClients(ctx context.Context, rnd *rand.Rand) (killed int) {
	for {
		if err := r.clients[rnd.IntN(len(r.clients))].kill(); err != nil {
			r.note("cannot start a client: %v", err)
			return killed
		}
		r.recorder.Count(clientsKilled, 1)
		killed++
		if chaos.Sleep(ctx, time.Duration(300+rnd.IntN(1500))*time.Millisecond) != nil {
			return killed
		}
	}
}

// pauseClient stops a client: for longer than its sessions live, and every other time
// for less.
func (r *run) pauseClient(_ context.Context, rnd *rand.Rand) int {
	c, d := r.clients[rnd.IntN(len(r.clients))], time.Duration(rnd.Int64N(int64(r.TTL)))
	if r.pauses.Add(1)%2 == 1 {
		d += r.TTL
	}
	resume, err := c.pause()
	if err != nil {
		return 0 // it has just been killed
	}
	time.Sleep(d)
	if !resume() {
		return 0
	}
	r.recorder.Count(clientsPaused, 1)
	return 1
}

// compaction takes the history away, up to the newest revision that the tap has seen:
// after an outage it may be behind, too.
func (r *run) compaction(ctx context.Context, rnd *rand.Rand) (compacted int) {
	for {
		call, cancel := context.WithTimeout(ctx, time.Second)
		if _, err := r.cluster.Client().Compact(call, r.tap.Through()); err == nil {
			r.recorder.Count(effectCompactions, 1)
			compacted++
		}
		cancel()
		if chaos.Sleep(ctx, time.Duration(100+rnd.IntN(100))*time.Millisecond) != nil {
			return compacted
		}
	}
}
