package processes

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/chaos"
	"github.com/etcdkit/etcdkit/internal/proof/check"
)

// part is how long nemeses strike before the run is looked at again.
const part = 30 * time.Second

// extend lets nemeses strike for a length of time. While the run lacks an effect that it must contain, they continue, in
// parts, for as long again at most: chance decides what a killed process was doing, and a void run says nothing.
func extend(length time.Duration, lacking func() ([]string, error), strike func(length time.Duration, missing []string)) error {
	strike(length, nil)
	for rest := length; rest > 0; rest -= part {
		missing, err := lacking()
		if err != nil || len(missing) == 0 {
			return err
		}
		strike(min(part, rest), missing)
	}
	return nil
}

// strikeAll lets all nemeses strike; or, if effects are missing, those that have them. Attempts are killed with their
// clients; what else no nemesis has for its effect can follow from any.
func (r *run) strikeAll(length time.Duration, missing []string) {
	all := r.strikers()
	var some []string
	for _, n := range nemeses {
		if slices.Contains(missing, n.effect) || n.effect == clientsKilled && slices.Contains(missing, attemptsKilled) {
			some = append(some, n.name)
		}
	}
	if len(missing) > 0 {
		r.note("the run continues, since it lacks %s", strings.Join(missing, ", "))
	}
	if len(some) > 0 {
		all = slices.DeleteFunc(all, func(n chaos.Nemesis) bool { return !slices.Contains(some, n.Name) })
	}
	faults, over := context.WithTimeout(r.life, length)
	defer over()
	r.env.Harm(faults, all)
}

// lacking returns what the run must contain, and does not yet.
func (r *run) lacking() (missing []string, err error) {
	h, err := r.history()
	if err != nil {
		return nil, err
	}
	seen := check.Judge(h).Effects
	seen[earlyDeletions] = int64(len(earlyEnds(h)))
	seen[permitsOutlived] = int64(longPauses(h, r.TTL).Permits)
	seen[attemptsKilled] = int64(killsInRequests(h).Attempts)
	for _, effect := range r.required {
		if seen[effect] == 0 {
			missing = append(missing, effect)
		}
	}
	return missing, r.life.Err()
}
