package main

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// naive is the usual pattern of lockers for gocron: the process that acquires the lock of the job's name
// runs the job, and the lock is released when the run ends. The lock does not know the fire time, so
// a process that comes after the end runs the job again. The lock itself is a concurrency.Mutex.
type naive struct {
	w     *worker
	locks map[string]*concurrency.Mutex
}

func newNaive(w *worker) (*naive, error) {
	n := &naive{w, map[string]*concurrency.Mutex{}}
	for _, j := range w.jobs {
		mu, err := concurrency.NewMutex(w.sess, j.Name)
		if err != nil {
			return nil, err
		}
		n.locks[j.Name] = mu
	}
	return n, nil
}

// run runs a job for a fire time, unless another process holds the lock.
func (n *naive) run(j job, tick time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), j.Every)
	defer cancel()
	lock, err := n.locks[j.Name].TryLock(ctx)
	if err != nil {
		return
	}
	at := event{Way: byName, Job: j.Name, Tick: tick.UTC(), Attempt: 1}
	at.Kind, at.At = evBegin, hostclock.Now()
	n.w.report(at)
	select {
	case <-time.After(j.Takes):
	case <-lock.Context().Done():
	}
	at.Kind, at.At = evEnd, 0
	if lock.Err() == nil {
		at.Outcome = "ran"
	}
	n.w.report(at)
	_ = lock.Release(context.Background())
}
