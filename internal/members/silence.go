package members

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	// silent is for how long a watch is silent when it is first asked whether its member answers. A watch
	// that stays silent is asked ever more seldom, at last as seldom as a lease is renewed.
	silent, silentMost = 200 * time.Millisecond, 5 * time.Second
	// unasked is when an answer is not awaited any more: a member that catches up gives none.
	unasked = time.Second
)

// silence finds out whether watches are silent because nothing happens, while callers wait for what they
// bring: a session that waits may have no call under way that would be late.
type silence struct {
	revision atomic.Uint64 // greatest of an answer

	mu      sync.Mutex
	waiting int // callers
	watches map[*watches]struct{}
	timer   *time.Timer
}

func newSilence() *silence {
	s := &silence{watches: map[*watches]struct{}{}}
	s.timer = time.AfterFunc(silent, s.look)
	s.timer.Stop()
	return s
}

// await records that a caller waits for what a watch brings, until done is called.
func (s *silence) await() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting++; s.waiting == 1 {
		s.timer.Reset(silent)
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting--; s.waiting == 0 {
			s.timer.Stop()
		}
	})
}

func (s *silence) add(w *watches) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w] = struct{}{}
}

func (s *silence) remove(w *watches) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, w)
}

// look asks the watches that have been silent.
func (s *silence) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == 0 {
		return
	}
	s.timer.Reset(silent)
	for w := range s.watches {
		if w.wants(time.Now(), s.revision.Load()) {
			go func() {
				_ = w.send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}})
			}()
		}
	}
}

// watches is a stream on which the request of a new watch has one answer, and that of the progress has one
// if the watches are up to date. Events come by themselves.
type watches struct {
	etcdserverpb.Watch_WatchClient
	*stream

	sending sync.Mutex // etcd's client and silence send

	// All are guarded by stream.mu.
	start    uint64        // the revision that the newest request of a watch asks for; 0 is the next one
	from     uint64        // the first revision of the newest watch
	next     time.Time     // when it will have been silent for so long that it is asked
	pause    time.Duration // between two questions
	progress time.Time     // when the question without an answer was sent, or zero
}

func (w *watches) send(m *etcdserverpb.WatchRequest) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	return w.Watch_WatchClient.Send(m)
}

func (w *watches) Send(m *etcdserverpb.WatchRequest) error {
	if create := m.GetCreateRequest(); create != nil {
		w.begins(create)
		w.asks()
	}
	return w.send(m)
}

func (w *watches) Recv() (*etcdserverpb.WatchResponse, error) {
	m, err := w.Watch_WatchClient.Recv()
	if err != nil {
		return nil, w.ends(err)
	}
	w.received(w.Watch_WatchClient)
	w.took(m)
	return m, nil
}

// took takes over a message of the stream, and what it answers.
func (w *watches) took(m *etcdserverpb.WatchResponse) {
	raise(&w.calls.silence.revision, uint64(m.GetHeader().GetRevision())) // what only watches has no other answers
	if w.brought(m) {
		w.answers()
	}
	if m.Created {
		w.answers()
	}
}

// wants reports whether the stream is to be asked for its progress now; the answer is due then.
func (w *watches) wants(now time.Time, revision uint64) bool {
	w.mu.Lock()
	given := !w.progress.IsZero() && now.Sub(w.progress) >= unasked
	asks := w.progress.IsZero() && w.asked == 0 && !now.Before(w.next) && revision >= w.from // etcd gives no answer before
	switch {
	case given:
		w.progress, w.next = time.Time{}, now.Add(w.pause)
	case asks:
		w.progress, w.pause = now, min(2*w.pause, silentMost)
	}
	w.mu.Unlock()
	switch {
	case given:
		w.answers()
	case asks:
		w.asks()
	}
	return asks
}

// begins takes over the request of a watch. etcd's client sends no other before the answer.
func (w *watches) begins(create *etcdserverpb.WatchCreateRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start = uint64(max(create.StartRevision, 0))
}

// brought takes over a message of the stream, and reports whether it answers the question.
func (w *watches) brought(m *etcdserverpb.WatchResponse) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.Created {
		w.from = max(w.from, cmp.Or(w.start, uint64(m.GetHeader().GetRevision())+1))
	}
	if len(m.Events) > 0 || m.Created {
		w.pause = silent
	}
	w.next = time.Now().Add(w.pause)
	due := !w.progress.IsZero()
	w.progress = time.Time{}
	return due
}
