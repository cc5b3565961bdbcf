package schedlock

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A642: a Job is removed, and the one that stays is planned in its place, before another Job of the name begins or is removed: it was
// planned for ever after its removal, or in place of the new one.
func TestRemovalOfTheLatestJobIsOneStep(t *testing.T) {
	t.Parallel()
	l := &Locker{jobs: newJobs(&etcd{}, fewJobs, time.Now)}
	l.etcd = &etcd{}
	p := &planner{locker: l, begun: true, jobs: map[string]*timetable{}, looked: map[string]bool{}, changed: make(chan struct{}, 1)}
	of := l.job("job")
	begin := func(j *Job) {
		p.change(func() {
			of.mu.Lock()
			of.jobs = append(of.jobs, j)
			of.mu.Unlock()
			p.add("job", &j.times)
		})
	}
	remove := func(j *Job) {
		p.giveUp(of, j)
		p.drop("job", &j.times)
	}
	one, latest := &Job{name: "job"}, &Job{name: "job"}
	begin(one)
	begin(latest)
	p.mu.Lock()
	var wg sync.WaitGroup
	wg.Go(func() { remove(latest) })
	require.Eventually(t, func() bool {
		of.mu.Lock()
		defer of.mu.Unlock()
		return len(of.jobs) == 1
	}, 10*time.Second, time.Millisecond)
	require.False(t, p.latest.TryLock(), "others wait")
	p.mu.Unlock()
	wg.Wait()
	require.Same(t, &one.times, p.jobs["job"])
	remove(one)
	require.Empty(t, p.jobs)
}
