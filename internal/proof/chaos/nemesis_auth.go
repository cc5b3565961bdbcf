package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// tokenTTL is for how long etcd remembers a login that is not used, in a world with
// authentication.
const tokenTTL = 2 * time.Second

// authNemeses end logins.
func authNemeses() []Nemesis {
	auth := func(w *World) bool { return w.Auth }
	return []Nemesis{
		{Name: "token-expiry", Needs: auth, Strike: tokenExpiry},
		{Name: "auth-revision", Needs: auth, Strike: authRevision},
	}
}

// tokenExpiry keeps a process from using its tokens for longer than they live.
func tokenExpiry(ctx context.Context, w *World, r *rand.Rand) (effects int) {
	p, free := w.claim(r.IntN(len(w.Processes)))
	defer free()
	before := p.logins()
	p.Client().Cut()
	_ = sleep(w.life, tokenTTL+time.Second)
	<-ctx.Done()
	p.Client().Heal()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if p.logins() > before {
			return 1
		}
		_ = sleep(w.life, 20*time.Millisecond)
	}
	return 0
}

// authRevision changes something about users, which voids every login at once.
func authRevision(ctx context.Context, w *World, r *rand.Rand) (effects int) {
	for every := time.Duration(300+r.IntN(1000)) * time.Millisecond; ; {
		before := 0
		for _, p := range w.Processes {
			before += p.logins()
		}
		role := fmt.Sprintf("nobody-%d", r.IntN(1<<30))
		if _, err := w.Admin().RoleAdd(ctx, role); err == nil {
			_, _ = w.Admin().RoleDelete(ctx, role)
		}
		ended := sleep(ctx, every)
		after := 0
		for _, p := range w.Processes {
			after += p.logins()
		}
		effects += max(0, after-before)
		if ended != nil {
			return effects
		}
	}
}
