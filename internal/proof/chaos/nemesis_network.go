package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// networkNemeses break the network of one process.
func networkNemeses() []Nemesis {
	return []Nemesis{
		{Name: "cut-client", Strike: broken(func(p *Process, _ int) { p.Client().Cut() }, silent)},
		{Name: "cut-client-from-one", Strike: broken(func(p *Process, member int) { p.Client().CutFrom(member) }, avoided)},
		{Name: "black-hole", Strike: broken(func(p *Process, _ int) { p.Client().BlackHole() }, silent)},
		{Name: "black-hole-of-one", Strike: broken(func(p *Process, member int) { p.Client().BlackHoleFrom(member) }, avoided)},
		{Name: "slow-network", Strike: slow},
	}
}

// broken is a nemesis that does something to the network of a process, and sees
// whether that had an effect.
func broken(harm func(p *Process, member int), felt func(context.Context, *Env, *Process, int) bool) func(context.Context, *Env, *rand.Rand) int {
	return func(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
		who, member := r.IntN(len(env.Processes)), r.IntN(env.Members())
		p, free := env.claim(who)
		defer free()
		if p == nil {
			return 0
		}
		harm(p, member)
		if felt(ctx, env, p, member) {
			effects++
		}
		<-ctx.Done()
		p.Client().Heal()
		return effects
	}
}

// silent reports whether a process gets no answer from any member.
func silent(ctx context.Context, _ *Env, p *Process, _ int) bool {
	_, err := answering(ctx, p.Client().Client)
	return err != nil
}

// avoided reports whether a process gets answers from others only, or none.
func avoided(ctx context.Context, env *Env, p *Process, member int) bool {
	for range 2 * env.Members() {
		if by, err := answering(ctx, p.Client().Client); err == nil && by == env.ids[member] {
			return false
		}
	}
	return true
}

// slow delays every byte.
func slow(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	who, d := r.IntN(len(env.Processes)), time.Duration(20+r.IntN(300))*time.Millisecond
	p, free := env.claim(who)
	defer free()
	if p == nil {
		return 0
	}
	p.Client().Delay(d)
	begun := time.Now()
	if _, err := answering(ctx, p.Client().Client); err != nil || time.Since(begun) >= 2*d {
		effects++
	}
	<-ctx.Done()
	p.Client().Heal()
	return effects
}

// answering sends one harmless request and returns the member that answered it.
func answering(ctx context.Context, c *clientv3.Client) (member uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	resp, err := c.Get(ctx, outside, clientv3.WithSerializable())
	if err != nil {
		return 0, err
	}
	return resp.Header.GetMemberId(), nil
}
