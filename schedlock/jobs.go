package schedlock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// fewJobs is how many jobs a process remembers after their last calls, at least: see jobs.
const fewJobs = 500

// jobs are those that a process uses, those of its latest calls, and those of a call with which the next one is compared, such as
// one of the day before. What it knows of the others is forgotten, as if it had
// begun later: it costs their next call a read. It is safe for concurrent use.
type jobs struct {
	etcd *etcd
	few  int
	now  func() time.Time

	mu      sync.Mutex
	byRange map[string]*job
	most    int // how many there may be before it looks for those that may be forgotten
}

func newJobs(e *etcd, few int, now func() time.Time) *jobs {
	return &jobs{etcd: e, few: few, now: now, byRange: map[string]*job{}, most: few}
}

// get returns the job of that name.
func (s *jobs) get(name string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.use(name)
}

// hold is get for what needs the events of the job until release is called.
func (s *jobs) hold(name string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.use(name)
	j.holds++
	return j
}

// release ends a hold.
func (s *jobs) release(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.holds--
}

// use is get. The caller holds mu.
func (s *jobs) use(name string) *job {
	keys := s.etcd.space.Job(name)
	j := s.byRange[keys.Range]
	if j == nil {
		if len(s.byRange) >= s.most {
			s.forget()
		}
		j = newJob(name, keys, s.etcd)
		s.byRange[keys.Range] = j
	}
	j.recent = true
	return j
}

// forget drops the jobs that nothing needs, not even the next call, and that no call has used since the last time. The caller holds mu.
func (s *jobs) forget() {
	kept, needed := make(map[string]*job, len(s.byRange)), 0 // a map keeps the room of its largest size
	now := s.now()
	for at, j := range s.byRange {
		switch {
		case j.holds > 0 || !j.idle() || j.callers.counts(now):
			needed++
			kept[at] = j
		case j.recent:
			kept[at] = j
		case j.cooldown.unused():
			s.etcd.sess.Later(j.cooldown.revokeSpares)
		}
		j.recent = false
	}
	s.byRange, s.most = kept, len(kept)+max(s.few, needed)
}

// known returns the job with that range, or nil if this process does not use it.
func (s *jobs) known(jobRange string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byRange[jobRange]
}

// all returns all of them.
func (s *jobs) all() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.byRange))
}

// revokeSpares is that of the cooldowns of all of them, side by side, after the session has closed.
func (s *jobs) revokeSpares(ctx context.Context) {
	var wg sync.WaitGroup
	for _, j := range s.all() {
		wg.Go(func() { j.cooldown.revokeSpares(ctx) })
	}
	wg.Wait()
}
