package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Sessions are the live sessions of a namespace.
type Sessions struct {
	n       int
	oldest  time.Time
	by      string         // the owner of the oldest
	etcdkit map[string]int // how many there are of each version; "": not known
}

// Add adds a session that began at a time, if that is not zero, of a process with a version of etcdkit, or "".
func (s *Sessions) Add(owner string, since time.Time, etcdkit string) {
	s.n++
	if !since.IsZero() && (s.oldest.IsZero() || since.Before(s.oldest)) {
		s.oldest, s.by = since, owner
	}
	if s.etcdkit == nil {
		s.etcdkit = map[string]int{}
	}
	s.etcdkit[etcdkit]++
}

// Findings judges how many live sessions there are.
func (s *Sessions) Findings(now time.Time) []Finding {
	if s.n == 0 {
		return One(Warn, "No service uses the namespace: check its name and --prefix.", "no live session")
	}
	age := time.Duration(0)
	if !s.oldest.IsZero() {
		age = now.Sub(s.oldest)
	}
	return One(OK, "", "%s, the oldest by %s for %s%s", count(s.n, "live session", "live sessions"), cmp.Or(s.by, "-"), brief(age), s.versions())
}

// mostVersions bounds the versions that a finding names.
const mostVersions = 5

// versions says which versions of etcdkit the processes have, as far as one is known. Several are no fault: a rollout has them.
func (s *Sessions) versions() string {
	known := slices.DeleteFunc(slices.Sorted(maps.Keys(s.etcdkit)), func(v string) bool { return v == "" })
	unknown := s.etcdkit[""]
	switch {
	case len(known) == 0:
		return ""
	case len(known) == 1 && unknown == 0:
		return "; etcdkit " + known[0]
	}
	var parts []string
	for i, v := range known {
		if i == mostVersions {
			parts = append(parts, fmt.Sprintf("%d more", len(known)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s (%d)", v, s.etcdkit[v]))
	}
	if unknown > 0 {
		parts = append(parts, fmt.Sprintf("not known (%d)", unknown))
	}
	return "; etcdkit " + strings.Join(parts, ", ")
}
