package chaos

import (
	"context"
	"time"
)

// watchLeaders counts changes of etcd's leader until ctx ends, and among them those
// that no nemesis explains: there the machine was too busy for the members' ticks.
func (env *Env) watchLeaders(ctx context.Context) {
	known, lost := env.Cluster.Leader(), false
	for Sleep(ctx, 20*time.Millisecond) == nil {
		now := env.Cluster.Leader()
		switch {
		case now < 0:
			lost = true
			continue
		case now == known && !lost:
			continue
		}
		env.Stats.Add("leader changes", 1)
		if !env.electionsExplained() {
			env.Stats.Add("leader changes without a cause", 1)
			env.note("a change of leader without a cause")
		}
		known, lost = now, false
	}
}

// electionsExplained reports whether a nemesis that makes etcd elect is at work, or
// was until a moment ago.
func (env *Env) electionsExplained() bool {
	env.mu.Lock()
	defer env.mu.Unlock()
	return env.electing > 0 || time.Since(env.elected) < 3*time.Second
}

// elections brackets the work of a nemesis that makes etcd elect.
func (env *Env) elections() (over func()) {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.electing++
	return func() {
		env.mu.Lock()
		defer env.mu.Unlock()
		env.electing--
		env.elected = time.Now()
	}
}
