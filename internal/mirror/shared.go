package mirror

import (
	"context"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// lingers is how long a mirror runs on without users: under contention the next waiter comes
// soon.
const lingers = 5 * time.Second

// Shared is the mirror of one queue that all callers of a session share. It runs while one of
// them uses it, and a little longer. It is safe for concurrent use.
type Shared struct {
	keys  keyspace.Queue
	fixed int64
	start func(*Mirror) (stop context.CancelFunc)
	rests bool // it stops as soon as it is not used

	mu       sync.Mutex
	mirror   *Mirror // nil unless it runs
	users    int
	stop     context.CancelFunc
	replaced chan struct{} // closed when the mirror is replaced
	linger   *time.Timer
}

// NewShared returns a mirror that does not run yet. A fixed limit above 0 is used instead of a
// stored one. start runs a new mirror until it is stopped.
func NewShared(keys keyspace.Queue, fixed int64, start func(*Mirror) (stop context.CancelFunc)) *Shared {
	return &Shared{keys: keys, fixed: fixed, start: start}
}

// NewResting is NewShared for a mirror that stops as soon as it is not used.
func NewResting(keys keyspace.Queue, fixed int64, start func(*Mirror) (stop context.CancelFunc)) *Shared {
	return &Shared{keys: keys, fixed: fixed, start: start, rests: true}
}

// Use is the mirror as one caller uses it, from Join until Leave.
type Use struct {
	*Mirror
	// Replaced is closed when Mirror is no longer the one to use, see Next. Both are set
	// together: asked for apart, a caller could wait for the replacement of the mirror
	// after its own.
	Replaced <-chan struct{}
	shared   *Shared
}

// Join returns the mirror, which runs at least until Leave.
func (s *Shared) Join() *Use {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	if s.linger != nil {
		s.linger.Stop()
		s.linger = nil
	}
	u := &Use{shared: s}
	s.set(u)
	return u
}

// set points a use at the mirror that runs. s.mu is held.
func (s *Shared) set(u *Use) {
	if s.mirror == nil {
		s.mirror, s.replaced = New(s.keys, s.fixed), make(chan struct{})
		s.stop = s.start(s.mirror)
	}
	u.Mirror, u.Replaced = s.mirror, s.replaced
}

// Next goes over to the mirror that has replaced this one.
func (u *Use) Next() {
	u.shared.mu.Lock()
	defer u.shared.mu.Unlock()
	u.shared.set(u)
}

// Leave ends the use. It is called once.
func (u *Use) Leave() {
	s := u.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	if s.rests {
		s.halt()
		return
	}
	var t *time.Timer
	t = time.AfterFunc(lingers, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.linger == t { // unused since
			s.halt()
		}
	})
	s.linger = t
}

// Rest stops the mirror now, unless it is used.
func (s *Shared) Rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		s.halt()
	}
}

// halt stops the mirror, which is not used. s.mu is held.
func (s *Shared) halt() {
	if s.linger != nil {
		s.linger.Stop()
	}
	if s.mirror != nil {
		s.stop()
	}
	s.mirror, s.linger = nil, nil
}

// Ahead returns how many requests are before one in the mirror. ok is false if no mirror runs that
// shows it.
func (s *Shared) Ahead(key string, token int64) (ahead int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirror == nil {
		return 0, false
	}
	return s.mirror.Ahead(key, token)
}

// Brief returns what the mirror shows of the queue. Its revision is 0 if no mirror runs.
func (s *Shared) Brief() (b Brief) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirror != nil {
		b, _ = s.mirror.Brief("", 0, 0)
	}
	return b
}

// Gone reports whether the mirror shows that a request is gone. Without a mirror it is not known.
func (s *Shared) Gone(key string, token int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirror == nil {
		return false
	}
	gone, _ := s.mirror.Gone(key, token)
	return gone
}

// Limit returns the limit that the mirror shows. Its revision is 0 if none is known, or if no mirror runs.
func (s *Shared) Limit() LimitRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirror == nil {
		return LimitRecord{}
	}
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	return s.mirror.limits.InForce()
}

// Replace stops the mirror, because what it has seen is wrong. Those that use it find
// Replaced closed.
func (s *Shared) Replace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirror != nil {
		s.stop()
		close(s.replaced)
		s.mirror = nil
	}
}

// ForeignKeys returns the keys in the range that are not requests. ok is false if no mirror runs
// that has listed the range.
func (s *Shared) ForeignKeys() (foreign []ForeignKey, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirror == nil {
		return nil, false
	}
	return s.mirror.ForeignKeys()
}
