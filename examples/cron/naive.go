package main

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// naive is the pattern of gocron's lockers: who gets the lock of the job's name runs it, and
// the lock is released when the run ends. Nothing tells which fire time it was for, so
// whoever comes after the end runs it again. The lock itself is as good as it gets.
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

// run runs a job for a fire time, if nobody else has the lock.
func (n *naive) run(j job, tick time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), j.Every)
	defer cancel()
	lock, err := n.locks[j.Name].TryLock(ctx)
	if err != nil {
		return
	}
	at := event{Way: byName, Job: j.Name, Tick: tick.UTC(), Attempt: 1}
	at.Kind, at.At = evBegin, hostclock.Now()
	n.w.tell(at)
	select {
	case <-time.After(j.Takes):
	case <-lock.Lost():
	}
	at.Kind, at.At = evEnd, 0
	if lock.Err() == nil {
		at.Outcome = "ran"
	}
	n.w.tell(at)
	_ = lock.Release(context.Background())
}
