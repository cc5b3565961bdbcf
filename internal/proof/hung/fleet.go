package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/observe"
)

// work is how long a permit is held.
const work = 10 * time.Millisecond

// tally is what a fleet has done: when each queue granted, and how long each request took.
type tally struct {
	mu       sync.Mutex
	grants   map[string][]time.Time
	requests []request
	lost     map[string]int // releases and requests that have failed, by their errors
	txns     atomic.Int64
	refused  atomic.Int64 // members that were left out, by the logs
	ended    atomic.Int64 // sessions that were lost
	open     atomic.Int64 // connections of the fleet
	most     atomic.Int64
}

type request struct {
	at   time.Time
	took time.Duration
}

func newTally() *tally { return &tally{grants: map[string][]time.Time{}, lost: map[string]int{}} }

func (t *tally) grant(queue string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.grants[queue] = append(t.grants[queue], time.Now())
}

func (t *tally) fail(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost[fmt.Sprintf("%s: %v", what, err)]++
}

func (t *tally) request(begun time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests = append(t.requests, request{begun, time.Since(begun)})
}

// rate returns the grants of a queue, or of all if it is empty, per second within a time.
func (t *tally) rate(queue string, from, to time.Time) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for name, all := range t.grants {
		for _, at := range all {
			if (queue == "" || name == queue) && at.After(from) && at.Before(to) {
				n++
			}
		}
	}
	return float64(n) / to.Sub(from).Seconds()
}

// gap returns the longest time within which some queue granted nothing, and its name.
func (t *tally) gap(from, to time.Time) (longest time.Duration, queue string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, all := range t.grants {
		before := from
		for _, at := range append(slices.Clone(all), to) {
			if at.Before(from) || at.After(to) {
				continue
			}
			if d := at.Sub(before); d > longest {
				longest, queue = d, name
			}
			before = at
		}
	}
	return longest, queue
}

// percentile returns how long a part of the requests that began within a time took at most.
func (t *tally) percentile(part float64, from, to time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []time.Duration
	for _, r := range t.requests {
		if r.at.After(from) && r.at.Before(to) {
			all = append(all, r.took)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(part*float64(len(all)-1))]
}

// connection is one that the tally counts.
type connection struct {
	net.Conn
	once   sync.Once
	closed func()
}

func (c *connection) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

// dial counts connections.
func (t *tally) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	now := t.open.Add(1)
	for most := t.most.Load(); now > most && !t.most.CompareAndSwap(most, now); {
		most = t.most.Load()
	}
	return &connection{Conn: conn, closed: func() { t.open.Add(-1) }}, nil
}

// count counts the Txns that are sent.
func (t *tally) count(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method == "/etcdserverpb.KV/Txn" {
		t.txns.Add(1)
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// warned counts the members that sessions leave out.
func (t *tally) warned(e zapcore.Entry) error {
	if strings.HasPrefix(e.Message, "a member of etcd does not answer while others do") {
		t.refused.Add(1)
	}
	return nil
}

// event counts the sessions that are lost.
func (t *tally) event(_ context.Context, e observe.Event) {
	if _, ok := e.(observe.SessionLost); ok {
		t.ended.Add(1)
	}
}

// member is one process of the fleet.
type member struct {
	client  *clientv3.Client
	session *concurrency.Session
}

// plain hides that a client's KV is etcd's own, so that no member is avoided.
type plain struct{ clientv3.KV }

// join makes a client with the settings of the documentation, and a session on it.
func join(ctx context.Context, t *tally, endpoints []string, ttl time.Duration, users, avoids bool) (*member, error) {
	config := clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(t.dial), grpc.WithChainUnaryInterceptor(t.count)},
	}
	if users {
		config.Username, config.Password = user, password
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	if !avoids {
		client.KV = plain{client.KV}
	}
	log := zap.New(zapcore.RegisterHooks(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zapcore.WarnLevel), t.warned))
	session, err := concurrency.NewSession(ctx, client, "hung", &concurrency.SessionOptions{TTL: ttl, Logger: log, Hooks: []observe.Hooks{{Event: t.event}}})
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &member{client, session}, nil
}

// work starts what a member does until ctx ends.
func (m *member) work(ctx context.Context, wg *sync.WaitGroup, t *tally, i int) error {
	sem, err := concurrency.NewSemaphore(m.session, "charge", 4, nil)
	if err != nil {
		return err
	}
	mutex, err := concurrency.NewMutex(m.session, "report")
	if err != nil {
		return err
	}
	keyed, err := concurrency.NewKeyedLimiter(m.session, "tenants", 1, nil)
	if err != nil {
		return err
	}
	key := keyed.Key("acme")
	store, err := idempotency.NewStore(m.session, "orders", nil)
	if err != nil {
		return err
	}
	hold := func(queue string, acquire func(context.Context) (*concurrency.Permit, error)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				p, err := acquire(ctx)
				if err != nil {
					if ctx.Err() == nil {
						t.fail("acquire "+queue, err)
					}
					continue
				}
				t.grant(queue)
				time.Sleep(work)
				if err := p.Release(context.WithoutCancel(ctx)); err != nil {
					t.fail("release "+queue, err)
				}
			}
		})
	}
	hold("charge", func(ctx context.Context) (*concurrency.Permit, error) { return sem.Acquire(ctx) })
	hold("charge", func(ctx context.Context) (*concurrency.Permit, error) { return sem.Acquire(ctx) })
	hold("report", func(ctx context.Context) (*concurrency.Permit, error) { return mutex.Lock(ctx) })
	hold("acme", func(ctx context.Context) (*concurrency.Permit, error) { return key.Acquire(ctx) })
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			begun := time.Now()
			_, err := idempotency.Do(context.WithoutCancel(ctx), store, idempotency.Key{Scope: "acme", Op: "pay", ID: fmt.Sprintf("%d/%d", i, n)}, n,
				func(context.Context, *idempotency.Attempt) (int, error) { return n, nil })
			if err != nil {
				t.fail("request", err)
			}
			t.request(begun)
			time.Sleep(20 * time.Millisecond)
		}
	})
	return nil
}
