package work

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/servers"
	"github.com/etcdkit/etcdkit/idempotency"
)

// result is what a request returns: 200 bytes that do not compress.
var result = func() string {
	b := make([]byte, 150)
	_, _ = rand.Read(b)
	return fmt.Sprintf("%x", b)[:200]
}()

// working and outcome are the values of a bare request, as long as ours.
var working, outcome = strings.Repeat("w", 249), strings.Repeat("d", 289) + result

// requestRoot is the beginning of the keys of bare requests, so that they are as long as ours.
func requestRoot() string { return "/" + name() + "/" + strings.Repeat("0", 59) }

// requests has that many callers begin and finish new requests, each with a name of its own.
func (e *Env) requests(ctx context.Context, inFlight int, request func(ctx context.Context, id string) error) (measure.Sample, error) {
	var next atomic.Int64
	prefix := name()
	ops := make([]op, inFlight)
	for i := range ops {
		ops[i] = func(ctx context.Context, c *caller) error {
			begun := time.Now()
			err := request(ctx, fmt.Sprintf("%s-%08d", prefix, next.Add(1)))
			c.wait(time.Since(begun))
			return err
		}
	}
	on := *e
	on.client = true
	return on.drive(ctx, ops, func(ctx context.Context) error {
		// The first requests grant leases.
		for late := time.Now().Add(5 * time.Second); next.Load() < 3*int64(inFlight) && time.Now().Before(late); {
			if err := after(time.Millisecond)(ctx); err != nil {
				return err
			}
		}
		return after(min(e.For/2, 300*time.Millisecond))(ctx)
	})
}

// Requests is new requests of etcdkit's idempotency, through Do.
func (e *Env) Requests(id string, inFlight int, opts ...idempotency.Option) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		st, end, err := e.store(ctx)
		if err != nil {
			return nil, err
		}
		defer end()
		s, err := e.requests(ctx, inFlight, func(ctx context.Context, id string) error {
			_, err := idempotency.Do(ctx, st, idempotency.Key{Op: "POST /payments", ID: id}, "payload", once, opts...)
			return err
		})
		return []measure.Sample{s}, err
	}}
}

func once(context.Context, *idempotency.Attempt) (string, error) { return result, nil }

func (e *Env) store(ctx context.Context) (*idempotency.Store, func(), error) {
	s, err := e.session(ctx, 0, name())
	if err != nil {
		return nil, nil, err
	}
	st, err := idempotency.NewStore(s, "work", &idempotency.Options{SingleTenant: true})
	if err != nil {
		end(s.Close)
		return nil, nil, err
	}
	return st, func() { end(s.Close) }, nil
}

// Replay is a duplicate whose outcome is in the memory of the process, one at a time.
func (e *Env) Replay(id string) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		st, end, err := e.store(ctx)
		if err != nil {
			return nil, err
		}
		defer end()
		const known, each = 500, 200
		var keys []idempotency.Key
		for i := range known {
			keys = append(keys, idempotency.Key{Op: "POST /payments", ID: fmt.Sprintf("known-%04d", i)})
		}
		call := func(i int) error {
			_, err := idempotency.Do(ctx, st, keys[i%known], "payload", once)
			return err
		}
		var took []time.Duration // of `each` calls
		var before, after runtime.MemStats
		allocs, calls := 0.0, 0
		for until := time.Now().Add(e.For); len(took) == 0 || time.Now().Before(until); {
			for i := range known { // an outcome stays in memory for ten seconds
				if err := call(i); err != nil {
					return nil, err
				}
			}
			for end := time.Now().Add(min(e.For, 2*time.Second)); ; {
				runtime.ReadMemStats(&before)
				begun := time.Now()
				for i := range each {
					if err := call(i); err != nil {
						return nil, err
					}
				}
				took = append(took, time.Since(begun)/each)
				runtime.ReadMemStats(&after)
				allocs, calls = allocs+float64(after.Mallocs-before.Mallocs), calls+each
				if time.Now().After(end) {
					break
				}
			}
		}
		return []measure.Sample{{
			measure.EachTime: float64(measure.Median(took).Nanoseconds()) / 1e3,
			measure.Allocs:   allocs / float64(calls),
		}}, nil
	}}
}

// BareRequests is a claim and its completion, sent as two Txns with as many keys, conditions and
// bytes as ours, by the client itself.
func (e *Env) BareRequests(id string, inFlight int) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		client, err := e.Etcd.Process(0)
		if err != nil {
			return nil, err
		}
		lease, err := client.Grant(ctx, 3600)
		if err != nil {
			return nil, err
		}
		root := requestRoot()
		if _, err := client.Put(ctx, root+"fence", "x", clientv3.WithLease(lease.ID)); err != nil {
			return nil, err
		}
		txn := func(ctx context.Context, ifs []clientv3.Cmp, then ...clientv3.Op) (int64, error) {
			r, err := client.Txn(ctx).If(ifs...).Then(then...).Commit()
			if err == nil && !r.Succeeded {
				err = errors.New("a condition of the Txn is not met")
			}
			if err != nil {
				return 0, err
			}
			return r.Header.Revision, nil
		}
		s, err := e.requests(ctx, inFlight, func(ctx context.Context, id string) error {
			key := root + id
			rev, err := txn(ctx, []clientv3.Cmp{
				clientv3.Compare(clientv3.CreateRevision(key), "=", 0),
				clientv3.Compare(clientv3.CreateRevision(root+"fence"), ">", 0),
			}, clientv3.OpPut(key, working, clientv3.WithLease(lease.ID)))
			if err != nil {
				return err
			}
			_, err = txn(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", rev)},
				clientv3.OpPut(key, outcome, clientv3.WithLease(lease.ID)))
			return err
		})
		return []measure.Sample{s}, err
	}}
}

// RedisRequests is a claim by SET NX and the outcome by SET, each of which expires.
func (e *Env) RedisRequests(id string, p servers.Policy, inFlight int) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		client, missing := e.Redis.Client(p, inFlight)
		if client == nil {
			return nil, measure.Unavailable(missing)
		}
		defer func() { _ = client.Close() }()
		on := *e
		on.counters = func(ctx context.Context) (servers.Counters, error) { return e.Redis.Counters(ctx, p) }
		s, err := on.requests(ctx, inFlight, func(ctx context.Context, id string) error {
			key := "{etcdkit-bench}:" + id
			if err := client.SetArgs(ctx, key, working, redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err(); err != nil {
				return err
			}
			return client.Set(ctx, key, outcome, time.Minute).Err()
		})
		delete(s, measure.Events)
		delete(s, measure.Reads)
		return []measure.Sample{s}, err
	}}
}
