package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
)

// keys has a member hang and continue again and again. Whenever it continues, all permits have been released
// and no call is under way: a key of a queue that is written then is one that was released, and exists again.
func (m *measurement) keys(ctx context.Context) (string, error) {
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := m.fleet[0].client.Watch(clientv3.WithRequireLeader(watched), "/etcdkit/", clientv3.WithPrefix())
	var grants, again int
	for n := range m.rounds {
		heal, err := m.harm(ctx)
		if err != nil {
			return "", err
		}
		granted, err := m.shift(ctx)
		if err != nil {
			heal()
			return "", err
		}
		grants += granted
		written, err := m.written(ctx, watch, heal)
		if err != nil {
			return "", err
		}
		again += written
		if written > 0 || n%10 == 9 {
			progress("%s: round %d of %d, %d grants, %d keys again", m.row, n+1, m.rounds, grants, again)
		}
	}
	return fmt.Sprintf("%d rounds, %d grants; released keys that exist again %d; sessions lost %d; failed: %v", m.rounds, grants, again, m.tally.ended.Load(), m.tally.lost), nil
}

// shift lets each process acquire and release for a while, and returns when all has been released.
func (m *measurement) shift(ctx context.Context) (granted int, err error) {
	var wg sync.WaitGroup
	var grants atomic.Int64
	var stop atomic.Bool
	for _, p := range m.fleet {
		sem, err := concurrency.NewSemaphore(p.session, "charge", 4, nil)
		if err != nil {
			return 0, err
		}
		mutex, err := concurrency.NewMutex(p.session, "report")
		if err != nil {
			return 0, err
		}
		for _, acquire := range []func() (*concurrency.Permit, error){
			func() (*concurrency.Permit, error) { return sem.Acquire(ctx) },
			func() (*concurrency.Permit, error) { return mutex.Lock(ctx) },
		} {
			wg.Go(func() {
				for !stop.Load() {
					held, err := acquire()
					if err != nil {
						m.tally.fail("acquire", err)
						return
					}
					grants.Add(1)
					time.Sleep(work)
					if err := held.Release(ctx); err != nil {
						m.tally.fail("release", err)
					}
				}
			})
		}
	}
	err = m.pass(ctx, time.Second)
	stop.Store(true)
	wg.Wait()
	return int(grants.Load()), err
}

// written counts the keys of queues that are written in the second after the member continues.
func (m *measurement) written(ctx context.Context, watch clientv3.WatchChan, heal func()) (n int, err error) {
	after, err := m.revision(ctx)
	heal()
	if err != nil {
		return 0, err
	}
	end := time.After(time.Second)
	for {
		select {
		case resp := <-watch:
			if err := resp.Err(); err != nil {
				return 0, err
			}
			for _, e := range resp.Events {
				if e.Type == mvccpb.PUT && e.Kv.ModRevision > after && strings.Contains(string(e.Kv.Key), "/queue/") {
					n++
				}
			}
		case <-end:
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// revision returns the present one. A read that goes to the member that hangs is given up.
func (m *measurement) revision(ctx context.Context) (int64, error) {
	for {
		call, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		resp, err := m.fleet[0].client.Get(call, "revision")
		cancel()
		if err == nil {
			return resp.Header.Revision, nil
		}
		if ctx.Err() != nil {
			return 0, err
		}
	}
}
