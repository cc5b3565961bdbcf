package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// tokenTTL is for how long etcd remembers a login that is not used, in a run with
// authentication.
const tokenTTL = 2 * time.Second

// authNemeses end logins.
func authNemeses() []Nemesis {
	auth := func(env *Env) bool { return env.Auth }
	return []Nemesis{
		{Name: "token-expiry", Needs: auth, Strike: tokenExpiry},
		{Name: "auth-revision", Needs: auth, Strike: authRevision},
	}
}

// tokenExpiry keeps a process from using its tokens for longer than they live.
func tokenExpiry(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	p, free := env.claim(r.IntN(len(env.Processes)))
	defer free()
	if p == nil {
		return 0
	}
	before := p.logins()
	p.Client().Cut()
	_ = Sleep(env.life, tokenTTL+time.Second)
	<-ctx.Done()
	p.Client().Heal()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if p.logins() > before {
			return 1
		}
		_ = Sleep(env.life, 20*time.Millisecond)
	}
	return 0
}

// authRevision changes something about users, which voids every login at once.
func authRevision(ctx context.Context, env *Env, r *rand.Rand) (effects int) {
	for every := time.Duration(300+r.IntN(1000)) * time.Millisecond; ; {
		before := 0
		for _, p := range env.Processes {
			before += p.logins()
		}
		role := fmt.Sprintf("unused-%d", r.IntN(1<<30))
		if _, err := env.Admin().RoleAdd(ctx, role); err == nil {
			_, _ = env.Admin().RoleDelete(ctx, role)
		}
		ended := Sleep(ctx, every)
		after := 0
		for _, p := range env.Processes {
			after += p.logins()
		}
		effects += max(0, after-before)
		if ended != nil {
			return effects
		}
	}
}
