package work

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/bench/measure"
)

// Deletion is the deletion of a key by one process and its event at another one, each with a connection of its own. A
// lock in etcd whose release is a deletion cannot reach the next holder earlier.
func (e *Env) Deletion(id string) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		took, err := e.deletions(ctx)
		if err != nil {
			return nil, err
		}
		s := measure.Sample{}
		times(s, []*caller{{passes: took}})
		return []measure.Sample{s}, nil
	}}
}

// deletions returns the times from the call that deletes to the event.
func (e *Env) deletions(ctx context.Context) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waiter, err := e.Etcd.Process(1)
	if err != nil {
		return nil, err
	}
	lock := name()
	acquire, end, err := Bare().open(ctx, e, 0, lock, 1)
	if err != nil {
		return nil, err
	}
	defer end()
	events := waiter.Watch(ctx, bareKey(lock), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	if r, ok := <-events; !ok || !r.Created {
		return nil, errors.New("the watch was not created")
	}
	deleted := make(chan time.Time, 1)
	go func() {
		defer close(deleted)
		for r := range events {
			if len(r.Events) > 0 {
				deleted <- time.Now()
			}
		}
	}()
	var took []time.Duration
	for n, until := -5, time.Now().Add(e.For); n < enough || time.Now().Before(until); n++ {
		release, err := acquire(ctx)
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		if err := release(ctx); err != nil {
			return nil, err
		}
		at, ok := <-deleted
		if !ok {
			return nil, errors.New("the watch has ended")
		}
		if n >= 0 {
			took = append(took, at.Sub(begun))
		}
	}
	return took, nil
}
