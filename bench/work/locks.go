package work

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcd "go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sync/semaphore"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/servers"
	"github.com/etcdkit/etcdkit/concurrency"
)

// acquire returns when it has one of the permits, with the function that releases it.
type acquire func(ctx context.Context) (release func(context.Context) error, err error)

// Lock is a contender: something that lets limit callers in at a time.
type Lock struct {
	Name string
	// open returns the lock of one process, and its end. All processes of a cell have the same name.
	open func(ctx context.Context, e *Env, process int, name string, limit int) (acquire, func(), error)
	// queue returns the prefix in etcd below which each waiting process has a key; "" without one.
	queue func(name string) string
}

// ttl is how long each contender's locks outlive their process.
const ttl = 15 * time.Second

// Ours is etcdkit's semaphore, with a session and a connection of its own in each process.
func Ours(kind string, opts *concurrency.SemaphoreOptions) Lock {
	return semaphores(kind, opts, func(ctx context.Context, sem *concurrency.Semaphore) (*concurrency.Permit, error) {
		return sem.Acquire(ctx)
	})
}

// Bounded is the same with MaxWaiters. A call that is refused is made again after a while.
func Bounded(kind string, most int, again time.Duration) Lock {
	return semaphores(kind, nil, func(ctx context.Context, sem *concurrency.Semaphore) (*concurrency.Permit, error) {
		for {
			p, err := sem.Acquire(ctx, concurrency.MaxWaiters(most))
			if !errors.Is(err, concurrency.ErrFull) {
				return p, err
			}
			if err := after(again)(ctx); err != nil {
				return nil, err
			}
		}
	})
}

func semaphores(kind string, opts *concurrency.SemaphoreOptions, call func(context.Context, *concurrency.Semaphore) (*concurrency.Permit, error)) Lock {
	return Lock{Name: kind, open: func(ctx context.Context, e *Env, process int, name string, limit int) (acquire, func(), error) {
		s, err := e.session(ctx, process, name)
		if err != nil {
			return nil, nil, err
		}
		sem, err := concurrency.NewSemaphore(s, "work", limit, opts)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context) (func(context.Context) error, error) {
			p, err := call(ctx, sem)
			if err != nil {
				return nil, err
			}
			return p.Release, nil
		}, func() { end(s.Close) }, nil
	}, queue: func(name string) string { return "/etcdkit/v1/" + name + "/semaphore/work/queue/" }}
}

// Mutex is etcdkit's mutex, whose limit is always 1.
func Mutex() Lock {
	return Lock{Name: "ours", open: func(ctx context.Context, e *Env, process int, name string, _ int) (acquire, func(), error) {
		s, err := e.session(ctx, process, name)
		if err != nil {
			return nil, nil, err
		}
		m, err := concurrency.NewMutex(s, "work")
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context) (func(context.Context) error, error) {
			p, err := m.Lock(ctx)
			if err != nil {
				return nil, err
			}
			return p.Release, nil
		}, func() { end(s.Close) }, nil
	}, queue: func(name string) string { return "/etcdkit/v1/" + name + "/mutex/work/queue/" }}
}

func (e *Env) session(ctx context.Context, process int, name string) (*concurrency.Session, error) {
	client, err := e.Etcd.Process(process)
	if err != nil {
		return nil, err
	}
	return concurrency.NewSession(ctx, client, name, &concurrency.SessionOptions{TTL: ttl})
}

func end(closing func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	_ = closing(ctx)
}

// EtcdMutex is the mutex of etcd's own client, package concurrency.
func EtcdMutex() Lock {
	return Lock{Name: "etcd Mutex", open: func(ctx context.Context, e *Env, process int, name string, _ int) (acquire, func(), error) {
		client, err := e.Etcd.Process(process)
		if err != nil {
			return nil, nil, err
		}
		s, err := etcd.NewSession(client, etcd.WithTTL(int(ttl.Seconds())))
		if err != nil {
			return nil, nil, err
		}
		m := etcd.NewMutex(s, "/"+name)
		return func(ctx context.Context) (func(context.Context) error, error) {
			if err := m.Lock(ctx); err != nil {
				return nil, err
			}
			return m.Unlock, nil
		}, func() { _ = s.Close() }, nil
	}, queue: func(name string) string { return "/" + name + "/" }}
}

// Bare is a key that is created on a lease and deleted: what any lock in etcd costs at least.
func Bare() Lock {
	return Lock{Name: "create + delete", open: func(ctx context.Context, e *Env, process int, name string, _ int) (acquire, func(), error) {
		client, err := e.Etcd.Process(process)
		if err != nil {
			return nil, nil, err
		}
		lease, err := client.Grant(ctx, 3600)
		if err != nil {
			return nil, nil, err
		}
		key, value := bareKey(name), string(make([]byte, 60))
		return func(ctx context.Context) (func(context.Context) error, error) {
			r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
				Then(clientv3.OpPut(key, value, clientv3.WithLease(lease.ID))).Commit()
			if err == nil && !r.Succeeded {
				err = errors.New("the key exists")
			}
			return func(ctx context.Context) error { _, err := client.Delete(ctx, key); return err }, err
		}, func() { end(func(ctx context.Context) error { _, err := client.Revoke(ctx, lease.ID); return err }) }, nil
	}}
}

func bareKey(name string) string {
	return "/etcdkit/v1/" + name + "/semaphore/work/queue/light/0123456789abcdef-00"
}

// poll is how long Redis's locks wait between two attempts: they have no queue.
const poll = 5 * time.Millisecond

// Redislock is github.com/bsm/redislock, which asks again each 5 ms.
func Redislock(p servers.Policy) Lock {
	return Lock{Name: "redislock " + string(p), open: func(_ context.Context, e *Env, _ int, name string, _ int) (acquire, func(), error) {
		client, missing := e.Redis.Client(p, 4)
		if client == nil {
			return nil, nil, measure.Unavailable(missing)
		}
		locker := redislock.New(client)
		opts := &redislock.Options{RetryStrategy: redislock.LinearBackoff(poll)}
		return func(ctx context.Context) (func(context.Context) error, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Hour) // otherwise it gives up after ttl
			defer cancel()
			l, err := locker.Obtain(ctx, "{etcdkit-bench}:"+name, ttl, opts)
			if err != nil {
				return nil, err
			}
			return l.Release, nil
		}, func() { _ = client.Close() }, nil
	}}
}

// Redsync is github.com/go-redsync/redsync on one Redis, which asks again each 5 ms.
func Redsync(p servers.Policy) Lock {
	return Lock{Name: "redsync " + string(p), open: func(_ context.Context, e *Env, _ int, name string, _ int) (acquire, func(), error) {
		client, missing := e.Redis.Client(p, 4)
		if client == nil {
			return nil, nil, measure.Unavailable(missing)
		}
		m := redsync.New(goredis.NewPool(client)).NewMutex("{etcdkit-bench}:"+name,
			redsync.WithExpiry(ttl), redsync.WithTries(1<<30), redsync.WithRetryDelay(poll))
		return func(ctx context.Context) (func(context.Context) error, error) {
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { _, err := m.UnlockContext(ctx); return err }, nil
		}, func() { _ = client.Close() }, nil
	}}
}

// Ideal is golang.org/x/sync/semaphore, which all callers share: what a limit costs without a network.
func Ideal() Lock {
	var shared sync.Map // by name
	return Lock{Name: "x/sync", open: func(_ context.Context, _ *Env, _ int, name string, limit int) (acquire, func(), error) {
		v, _ := shared.LoadOrStore(name, semaphore.NewWeighted(int64(limit)))
		sem := v.(*semaphore.Weighted)
		return func(ctx context.Context) (func(context.Context) error, error) {
			if err := sem.Acquire(ctx, 1); err != nil {
				return nil, err
			}
			return func(context.Context) error { sem.Release(1); return nil }, nil
		}, func() { shared.Delete(name) }, nil
	}}
}
