package chaos

import (
	"context"
	"math/rand/v2"
	"time"
)

// memberNemeses break etcd itself.
func memberNemeses() []Nemesis {
	return []Nemesis{
		{Name: "crash", Elects: true, Strike: crash},
		{Name: "move-leader", Elects: true, Strike: moveLeader},
		{Name: "cut-peers", Elects: true, Strike: cutPeers},
		{Name: "hang-member", Elects: true, Strike: hangMember},
	}
}

// victim draws a member: the leader as often as not.
func victim(env *Env, r *rand.Rand) int {
	any, leader := r.IntN(env.Members()), r.IntN(2) == 0
	if now := env.Cluster.Leader(); leader && now >= 0 {
		return now
	}
	return any
}

// crash stops a member without a word and starts it again.
func crash(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	i := victim(env, r)
	if err := env.Cluster.Crash(i); err != nil {
		env.trouble("crash of member %d: %v", i, err)
		return 0
	}
	if !env.answers(ctx, i, false) {
		effects++
	}
	<-ctx.Done()
	env.mend("restart of a member", func(ctx context.Context) error { return env.Cluster.Restart(ctx, i) })
	return effects
}

// moveLeader hands leadership from one to the next.
func moveLeader(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	for every := time.Duration(200+r.IntN(800)) * time.Millisecond; ; {
		to, was := r.IntN(env.Members()), env.Cluster.Leader()
		if err := env.Cluster.MoveLeader(ctx, to); err == nil && was != to {
			effects++
		}
		if Sleep(ctx, every) != nil {
			return effects
		}
	}
}

// cutPeers cuts a member off from the others; its clients still reach it.
func cutPeers(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	i := victim(env, r)
	if err := env.Cluster.CutPeers(i); err != nil {
		env.trouble("cut of member %d: %v", i, err)
		return 0
	}
	for ctx.Err() == nil { // a follower serves on for an election timeout
		if !env.answers(ctx, i, true) && ctx.Err() == nil {
			effects = 1
			break
		}
		_ = Sleep(ctx, 50*time.Millisecond)
	}
	<-ctx.Done()
	env.mend("peers of a member", func(context.Context) error { return env.Cluster.HealPeers(i) })
	return effects
}

// hangMember has a member give no answer, as one that is stopped: its connections stay open, and what is sent to it
// arrives when it continues. Processes that another nemesis has, and those that start meanwhile, still reach it.
func hangMember(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	i := victim(env, r)
	all, free := env.claimAll()
	defer free()
	if err := env.Cluster.CutPeers(i); err != nil {
		env.trouble("hanging of member %d: %v", i, err)
		return 0
	}
	for _, p := range all {
		p.Client().BlackHoleFrom(i)
	}
	for _, p := range all {
		if ctx.Err() == nil && avoided(ctx, env, p, i) {
			effects = 1
			break
		}
	}
	<-ctx.Done()
	env.mend("peers of a member", func(context.Context) error { return env.Cluster.HealPeers(i) })
	for _, p := range all {
		p.Client().Heal()
	}
	return effects
}
