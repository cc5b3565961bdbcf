package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// observer reads the semaphore's state from etcd, for the timeline and to find what is left
// at the end. The referee does not use it.
type observer struct {
	client *clientv3.Client
	sess   *concurrency.Session
	sem    *concurrency.Semaphore
	ttl    time.Duration

	halt  context.CancelFunc
	wg    sync.WaitGroup
	taken []change // permits taken in etcd; complete after close
}

func observe(ctx context.Context, s settings) (o *observer, err error) {
	o = &observer{ttl: s.TTL}
	if o.client, err = s.Dial(); err != nil {
		return nil, err
	}
	start, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if o.sess, err = concurrency.NewSession(start, o.client, s.Namespace, nil); err == nil {
		o.sem, err = concurrency.NewSemaphore(o.sess, semaphoreName, s.Limit, nil)
	}
	if err != nil {
		_ = o.client.Close()
		return nil, err
	}
	ctx, o.halt = context.WithCancel(context.Background())
	o.wg.Go(func() {
		for st, err := range o.sem.Watch(ctx) {
			if err == nil {
				o.taken = append(o.taken, change{hostclock.Now(), st.Used})
			}
		}
	})
	return o, nil
}

// leftBehind returns the number of keys in the queue after all workers have ended. The
// permits of killed processes expire within the TTL and half a second: leftBehind waits for
// that time at most.
func (o *observer) leftBehind(ctx context.Context) (int, error) {
	bound := time.Now().Add(o.ttl + 500*time.Millisecond)
	for {
		st, err := o.sem.Status(ctx)
		if err != nil {
			return 0, fmt.Errorf("read what is left in etcd: %w", err)
		}
		n := len(st.Holders) + len(st.Waiters) + st.Foreign
		if n == 0 || time.Now().After(bound) {
			return n, nil
		}
		_ = program.Sleep(ctx, 50*time.Millisecond)
	}
}

// close ends the session and removes all keys of the run from etcd.
func (o *observer) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	o.halt()
	o.wg.Wait()
	prefix := o.sess.NamespacePrefix()
	err := o.sess.Close(ctx)
	_, removed := o.client.Delete(ctx, prefix, clientv3.WithPrefix())
	return errors.Join(err, removed, o.client.Close())
}
