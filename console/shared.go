package console

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Bounds of what is read for the viewers.
const (
	readEvery = time.Second      // at most, of one page
	idlePart  = 9                // times as long as a read took, it is not repeated
	readBound = 10 * time.Second // of one read
	patience  = time.Second      // with which a read is awaited, if there is an older one
	firstWait = 5 * time.Second  // with which the first one is awaited
	maxPages  = 512              // that are remembered
	maxFound  = 16               // of them, searches
	maxReads  = 64               // at the same time; they outlive the viewers that have left
)

var (
	errBusy = errors.New("too many pages are being read at the same time")
	errSlow = errors.New("it is large, or etcd does not answer; read this page again")
	// errClosed is the end of the console with its session.
	errClosed = fmt.Errorf("the program has closed its session, and this console has ended with it: %w", concurrency.ErrClosed)
)

// shared is what has been read, for all viewers.
type shared struct {
	session context.Context // ends with the session

	mu    sync.Mutex
	pages map[string]readings
	reads int // that have not ended
}

// readings are those of one page.
type readings struct {
	asked  time.Time // when it was requested last
	last   *reading  // maybe under way
	good   *reading  // the last one before it that has succeeded, or nil
	failed error     // the failure of one between the two, or nil
}

// reading is one page's state.
type reading struct {
	done  chan struct{} // closed when it is there
	value any
	asOf  time.Time
	until time.Time // it is read again then
	err   error
}

// urgent is a value that is read again as soon as after a failure, if it says so.
type urgent interface{ urgent() bool }

// found is what get has found.
type found struct {
	value any
	asOf  time.Time
	late  error // how the last read has failed, if there should be something newer
}

// get returns what read has returned lately, by key, or has it read, at most once in every. All callers that
// come meanwhile get the same result. The read does not end with the caller's ctx. If it fails, or takes longer than
// patience, what was read before is returned.
func (s *shared) get(ctx context.Context, key string, every time.Duration, read func(context.Context) (any, error)) (found, error) {
	s.mu.Lock()
	p := s.pages[key]
	now := time.Now()
	if p.last == nil || p.last.expired(now) {
		if p.last != nil {
			if p.failed = p.last.err; p.failed == nil {
				p.good = p.last
			}
		}
		if s.reads >= maxReads {
			s.mu.Unlock()
			return p.good.instead(errBusy)
		}
		s.reads++
		r := &reading{done: make(chan struct{}), asOf: now}
		p.last = r
		go func() {
			r.read(s.session, every, read)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reads--
		}()
	}
	p.asked = now
	s.remember(key, p)
	s.mu.Unlock()
	wait := firstWait
	if p.good != nil {
		wait = patience
	}
	ctx, cancel := context.WithDeadlineCause(ctx, p.last.asOf.Add(wait), errSlow)
	defer cancel()
	select {
	case <-p.last.done:
	case <-ctx.Done():
	}
	switch {
	case p.last.ended() && p.last.err == nil:
		return found{value: p.last.value, asOf: p.last.asOf}, nil
	case p.last.ended():
		return p.good.instead(p.last.err)
	case p.good == nil:
		return found{}, context.Cause(ctx)
	}
	return p.good.instead(p.failed)
}

// remember keeps the readings of a page, in place of those of the page that was requested least recently if there
// are too many. s must be locked.
func (s *shared) remember(key string, p readings) {
	if s.pages == nil {
		s.pages = map[string]readings{}
	}
	s.pages[key] = p
	s.bound("", maxPages)
	s.bound(ofSearch, maxFound)
}

// ofSearch begins the keys of searches.
const ofSearch = "search/"

// bound forgets the page that was requested least recently of those whose keys begin with a text, if they are more than so
// many. s must be locked.
func (s *shared) bound(prefix string, most int) {
	oldest, n := "", 0
	for key, of := range s.pages {
		if strings.HasPrefix(key, prefix) {
			if n++; n == 1 || of.asked.Before(s.pages[oldest].asked) {
				oldest = key
			}
		}
	}
	if n > most {
		delete(s.pages, oldest)
	}
}

// instead returns an older reading in place of one that is not there, or why it is not if there is no older one.
func (r *reading) instead(err error) (found, error) {
	if r == nil {
		return found{}, err
	}
	return found{r.value, r.asOf, err}, nil
}

// drop has everything read again: an action has changed it.
func (s *shared) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages = nil
}

// ended reports whether the page was read.
func (r *reading) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// expired reports whether the page is to be read again.
func (r *reading) expired(now time.Time) bool { return r.ended() && now.After(r.until) }

func (r *reading) read(session context.Context, every time.Duration, read func(context.Context) (any, error)) {
	ctx, cancel := context.WithTimeout(session, readBound)
	defer cancel()
	r.value, r.err = read(ctx)
	now := time.Now()
	pause := every
	if u, ok := r.value.(urgent); r.err == nil && !(ok && u.urgent()) { // after a failure its viewers are shown soon that it is over
		pause = max(pause, idlePart*now.Sub(r.asOf))
	}
	r.until = now.Add(pause)
	close(r.done)
}
