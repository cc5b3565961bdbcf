package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// fixture is the environment of one promise: a prefix, and the instances below it.
type fixture struct {
	cluster clientv3.Config
	store   Store
	opts    Options
	prefix  string
	etcd    *clientv3.Client // of the fixture itself
	conn    *connection      // of that client

	ctx    context.Context // of calls
	cancel context.CancelFunc
	over   chan struct{} // closed when the promise has ended
	calls  sync.WaitGroup

	members []*member
}

// member is an instance with its client.
type member struct {
	Instance
	f      *fixture
	client *clientv3.Client
	conn   *connection
	dead   bool // killed
	closed bool
}

func newFixture(ctx context.Context, cluster clientv3.Config, store Store, opts Options, name string) (*fixture, error) {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	f := &fixture{cluster: cluster, store: store, opts: opts, conn: newConnection(), over: make(chan struct{})}
	f.prefix = opts.Prefix + name + "-" + hex.EncodeToString(id[:]) + "/"
	etcd, err := f.conn.dial(cluster)
	if err != nil {
		return nil, fmt.Errorf("create a client: %w", err)
	}
	f.etcd = etcd
	f.ctx, f.cancel = context.WithCancel(ctx)
	reach, cancel := context.WithTimeout(f.ctx, min(opts.Patience, 10*time.Second))
	defer cancel()
	if _, err := etcd.Get(reach, f.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil {
		f.cancel()
		return nil, errors.Join(fmt.Errorf("read keys below %s at %v: %w", opts.Prefix, cluster.Endpoints, err), etcd.Close())
	}
	return f, nil
}

// bounded returns a context for one step, with Patience.
func (f *fixture) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(f.ctx, f.opts.Patience)
}

// open opens another instance.
func (f *fixture) open() *member {
	m := &member{f: f, conn: newConnection()}
	var err error
	if m.client, err = m.conn.dial(f.cluster); err != nil {
		f.failf("create a client: %w", err)
	}
	f.members = append(f.members, m)
	ctx, cancel := f.bounded()
	defer cancel()
	if m.Instance, err = f.store.Open(ctx, m.client, f.prefix); err != nil {
		f.failf("open an instance: %w", err)
	}
	return m
}

// kill simulates the death of the instance's process: none of its requests reaches etcd any more,
// and its lease and keys stay.
func (m *member) kill() {
	m.dead = true
	m.conn.cutAll() // so that closing removes nothing
	m.closeClient()
}

// crash is kill, and the expiry of the instance's claims.
func (m *member) crash() {
	m.dead = true
	m.conn.cutAll()
	m.expire()
	m.closeClient()
}

// expire ends the instance's claims, as the expiry of its lease does.
func (m *member) expire() {
	ctx, cancel := m.f.bounded()
	defer cancel()
	if err := m.Expire(ctx, m.f.etcd); err != nil {
		m.f.failf("expire the claims of an instance: %w", err)
	}
}

// closeClient closes the client, and waits 3 seconds at most: etcd's client can hang in Close if a
// watch was refused just then.
func (m *member) closeClient() {
	closed := make(chan struct{})
	go func() { defer close(closed); _ = m.client.Close() }()
	select {
	case <-closed:
	case <-time.After(3 * time.Second):
	}
}

// close closes the instance.
func (m *member) close() {
	ctx, cancel := m.f.bounded()
	defer cancel()
	m.closed = true
	if err := m.Close(ctx); err != nil {
		m.f.failf("close an instance: %w", err)
	}
}

// end closes the instances and removes keys and leases. It returns the errors of that; those of
// instances that do not close only if the promise was kept (well).
func (f *fixture) end(well bool) error {
	close(f.over)
	f.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), f.opts.Patience)
	defer cancel()
	var errs []error
	for _, m := range f.members {
		if m.Instance == nil || m.closed {
			continue
		}
		bound := f.opts.Patience
		if m.dead {
			bound = time.Second
		}
		closing, cancel := context.WithTimeout(ctx, bound)
		if err := m.Close(closing); err != nil && well && !m.dead {
			errs = append(errs, fmt.Errorf("close an instance: %w", err))
		}
		cancel()
	}
	returned := make(chan struct{})
	go func() { defer close(returned); f.calls.Wait() }()
	select {
	case <-returned:
	case <-ctx.Done():
		errs = append(errs, errors.New("calls do not return after their context has ended and their instance is closed"))
	}
	for _, m := range f.members {
		m.closeClient()
	}
	errs = append(errs, f.cleanUp(), f.etcd.Close())
	return errors.Join(errs...)
}

// cleanUp revokes the leases and deletes the keys of the fixture.
func (f *fixture) cleanUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), max(f.opts.Patience, 10*time.Second))
	defer cancel()
	for _, id := range f.leases() {
		if _, err := f.etcd.Revoke(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return fmt.Errorf("lease %x is left: %w", int64(id), err)
		}
	}
	if _, err := f.etcd.Delete(ctx, f.prefix, clientv3.WithPrefix()); err != nil {
		return fmt.Errorf("keys below %s are left: %w", f.prefix, err)
	}
	return nil
}

// leases returns the leases that were granted through any client and not revoked.
func (f *fixture) leases() (ids []clientv3.LeaseID) {
	conns := []*connection{f.conn}
	for _, m := range f.members {
		conns = append(conns, m.conn)
	}
	for _, c := range conns {
		c.mu.Lock()
		for id := range c.leases {
			ids = append(ids, clientv3.LeaseID(id))
		}
		c.mu.Unlock()
	}
	return ids
}

// keys returns the keys of the store, with their values.
func (f *fixture) keys() map[string]string {
	ctx, cancel := f.bounded()
	defer cancel()
	resp, err := f.etcd.Get(ctx, f.prefix, clientv3.WithPrefix())
	if err != nil {
		f.failf("read keys: %w", err)
	}
	found := map[string]string{}
	for _, kv := range resp.Kvs {
		found[string(kv.Key)] = string(kv.Value)
	}
	return found
}
