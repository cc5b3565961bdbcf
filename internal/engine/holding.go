package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// holding is one of those that Close waits for.
type holding struct {
	job   string // of which it is a run, or empty
	key   string // of the request of a permit, or empty
	token int64
	note  string
	since time.Time
}

// holdings are all that Close waits for.
type holdings struct {
	named    []holding
	attempts int
}

func (h holdings) count() int { return len(h.named) + h.attempts }

// namesHeld bounds how many of what Close waits for are named.
const namesHeld = 5

// awaitHolders waits until nothing is held, or the session or ctx ends. What is still held is logged once, after ReportEvery, and
// is in the error of Close if ctx ends the wait.
func awaitHolders(ctx context.Context, s *Session) {
	began, late := time.Now(), time.NewTimer(s.opts.ReportEvery)
	defer late.Stop()
	for {
		select {
		case <-s.work.idle:
			return
		case <-s.ctx.Done():
			return
		case <-late.C:
			s.said.Do(func() {
				s.opts.Log.Warn("Close waits for what is still held", zap.Duration("for", time.Since(began).Round(time.Millisecond)), zap.String("held", heldText(s.space, heldNow(s), time.Now())))
			})
		case <-ctx.Done():
			if held := heldNow(s); s.ctx.Err() == nil && held.count() > 0 {
				s.fail(fmt.Errorf("close session: %s had not ended: %w", heldText(s.space, held, time.Now()), ctx.Err()))
			}
			return
		}
	}
}

// heldNow reads what Close waits for, at one moment. A permit whose release etcd has not confirmed is not held: revoking the lease
// frees it as well.
func heldNow(s *Session) holdings {
	s.mu.Lock()
	e := s.current
	s.mu.Unlock()
	if e == nil {
		return holdings{}
	}
	return e.roll.holdings()
}

// heldText is the text of what is held at a time, the longest held first.
func heldText(s keyspace.Space, held holdings, at time.Time) string {
	if held.count() == 0 {
		return "permits, runs or attempts"
	}
	named := held.named
	slices.SortFunc(named, func(a, b holding) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.token, b.token)) })
	var parts []string
	for _, h := range named[:min(len(named), namesHeld)] {
		parts = append(parts, h.text(s, at))
	}
	if more := len(named) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	if held.attempts > 0 {
		parts = append(parts, fmt.Sprintf("attempts of requests: %d", held.attempts))
	}
	return fmt.Sprintf("%d permits, runs or attempts (%s)", held.count(), strings.Join(parts, "; "))
}

// text names one of them.
func (h holding) text(s keyspace.Space, at time.Time) string {
	text := fmt.Sprintf("job %q", h.job)
	if h.key != "" {
		text = fmt.Sprintf("%s, token %d", queueOf(s, h.key), h.token)
	}
	text += fmt.Sprintf(", for %v", at.Sub(h.since).Round(time.Millisecond))
	if h.note != "" {
		text += fmt.Sprintf(", note %q", h.note)
	}
	return text
}

// queueOf returns the kind and the name of the queue of a request.
func queueOf(s keyspace.Space, in string) string {
	for _, kind := range []keyspace.Kind{keyspace.Semaphore, keyspace.Mutex, keyspace.Election, keyspace.Rate} {
		if name, ok := s.ParseQueue(kind, in); ok {
			return fmt.Sprintf("%s %q", kind, name)
		}
	}
	name, ok := s.ParseLimiter(in)
	if !ok {
		return in
	}
	if key, ok := s.Limiter(name).ParseKey(in); ok {
		return fmt.Sprintf("limiter %q, key %q", name, key)
	}
	return fmt.Sprintf("limiter %q", name)
}

// holdings returns what is held: the permits that are not released, without helpers, and the runs, and how many attempts there are.
func (r *roll) holdings() (held holdings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t, h := range r.holders {
		if !h.Released() && !t.helps {
			held.named = append(held.named, holding{key: t.Key, token: t.Token, note: t.Note, since: t.since})
		}
	}
	for _, h := range r.runs {
		held.named = append(held.named, h)
	}
	held.attempts = r.entered - len(r.runs)
	return held
}
