package chaos

import (
	"context"
	"time"
)

// watchLeaders counts changes of etcd's leader until ctx ends, and among them those
// that no nemesis explains: there the machine was too busy for the members' ticks.
func (w *World) watchLeaders(ctx context.Context) {
	known, lost := w.Cluster.Leader(), false
	for sleep(ctx, 20*time.Millisecond) == nil {
		now := w.Cluster.Leader()
		switch {
		case now < 0:
			lost = true
			continue
		case now == known && !lost:
			continue
		}
		w.Stats.Add("leader changes", 1)
		if !w.electionsExplained() {
			w.Stats.Add("leader changes that nobody caused", 1)
			w.note("a change of leader that nobody caused")
		}
		known, lost = now, false
	}
}

// electionsExplained tells whether a nemesis that makes etcd elect is at work, or
// was until a moment ago.
func (w *World) electionsExplained() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.electing > 0 || time.Since(w.elected) < 3*time.Second
}

// elections brackets the work of a nemesis that makes etcd elect.
func (w *World) elections() (over func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.electing++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.electing--
		w.elected = time.Now()
	}
}
