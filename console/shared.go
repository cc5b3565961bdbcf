package console

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Bounds of what is read for the viewers.
const (
	readEvery = time.Second      // at most, of one page
	idlePart  = 9                // times as long as a read took, it is not repeated
	readBound = 10 * time.Second // of one read
	maxPages  = 512              // that are remembered
	maxReads  = 64               // at the same time; they outlive the viewers that have left
)

var errBusy = errors.New("too many pages are being read at the same time")

// shared is what has been read, for all viewers.
type shared struct {
	session context.Context // ends with the session

	mu    sync.Mutex
	pages map[string]*reading
	reads int // that have not ended
}

// reading is one page's state.
type reading struct {
	done  chan struct{} // closed when it is there
	value any
	asOf  time.Time
	until time.Time // it is read again then
	err   error
}

// get returns what read has returned lately, by key, or has it read, at most once in every. All callers that
// come meanwhile get the same result. The read does not end with the caller's ctx.
func (s *shared) get(ctx context.Context, key string, every time.Duration, read func(context.Context) (any, error)) (any, time.Time, error) {
	s.mu.Lock()
	r := s.pages[key]
	if r == nil || r.expired(time.Now()) {
		if s.reads >= maxReads {
			s.mu.Unlock()
			return nil, time.Time{}, errBusy
		}
		s.reads++
		if s.pages == nil || len(s.pages) >= maxPages {
			s.pages = map[string]*reading{}
		}
		r = &reading{done: make(chan struct{})}
		s.pages[key] = r
		go func() {
			r.read(s.session, every, read)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reads--
		}()
	}
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.value, r.asOf, r.err
	case <-ctx.Done():
		return nil, time.Time{}, ctx.Err()
	}
}

// drop has everything read again: an action has changed it.
func (s *shared) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages = nil
}

// expired reports whether the page is to be read again.
func (r *reading) expired(now time.Time) bool {
	select {
	case <-r.done:
		return now.After(r.until)
	default:
		return false
	}
}

func (r *reading) read(session context.Context, every time.Duration, read func(context.Context) (any, error)) {
	ctx, cancel := context.WithTimeout(session, readBound)
	defer cancel()
	r.asOf = time.Now()
	r.value, r.err = read(ctx)
	now := time.Now()
	pause := every
	if r.err == nil { // after a failure its viewers are shown soon that it is over
		pause = max(pause, idlePart*now.Sub(r.asOf))
	}
	r.until = now.Add(pause)
	close(r.done)
}
