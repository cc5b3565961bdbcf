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

// world is where one promise is tried: a prefix, and what was started below it.
type world struct {
	cluster clientv3.Config
	store   Store
	opts    Options
	prefix  string
	etcd    *clientv3.Client // the suite's own
	wire    *wire            // of that

	ctx    context.Context // of calls
	cancel context.CancelFunc
	over   chan struct{} // closed when the promise was tried
	calls  sync.WaitGroup

	members []*member
}

// member is an instance, as a process has it.
type member struct {
	Instance
	w      *world
	client *clientv3.Client
	wire   *wire
	dead   bool // killed
	closed bool
}

func newWorld(ctx context.Context, cluster clientv3.Config, store Store, opts Options, name string) (*world, error) {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	w := &world{cluster: cluster, store: store, opts: opts, wire: newWire(), over: make(chan struct{})}
	w.prefix = opts.Prefix + name + "-" + hex.EncodeToString(id[:]) + "/"
	etcd, err := w.wire.dial(cluster)
	if err != nil {
		return nil, fmt.Errorf("no client: %w", err)
	}
	w.etcd = etcd
	w.ctx, w.cancel = context.WithCancel(ctx)
	reach, cancel := context.WithTimeout(w.ctx, min(opts.Patience, 10*time.Second))
	defer cancel()
	if _, err := etcd.Get(reach, w.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil {
		w.cancel()
		return nil, errors.Join(fmt.Errorf("no cluster that can be read below %s at %v: %w", opts.Prefix, cluster.Endpoints, err), etcd.Close())
	}
	return w, nil
}

// soon bounds one thing that has to happen.
func (w *world) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.ctx, w.opts.Patience)
}

// open opens one more instance.
func (w *world) open() *member {
	m := &member{w: w, wire: newWire()}
	var err error
	if m.client, err = m.wire.dial(w.cluster); err != nil {
		w.failf("no client: %w", err)
	}
	w.members = append(w.members, m)
	ctx, cancel := w.soon()
	defer cancel()
	if m.Instance, err = w.store.Open(ctx, m.client, w.prefix); err != nil {
		w.failf("an instance cannot be opened: %w", err)
	}
	return m
}

// kill ends the instance's process: nothing more of it reaches etcd, and nothing is given
// back.
func (m *member) kill() {
	m.dead = true
	m.wire.cutOff() // no farewell
	m.hangUp()
}

// crash is a kill that etcd has noticed.
func (m *member) crash() {
	m.dead = true
	m.wire.cutOff()
	m.expire()
	m.hangUp()
}

// expire has etcd take the instance for dead.
func (m *member) expire() {
	ctx, cancel := m.w.soon()
	defer cancel()
	if err := m.Expire(ctx, m.w.etcd); err != nil {
		m.w.failf("an instance's attempts cannot be ended: %w", err)
	}
}

// hangUp closes the client. etcd's own client can hang there, if a watch was refused just
// then.
func (m *member) hangUp() {
	closed := make(chan struct{})
	go func() { defer close(closed); _ = m.client.Close() }()
	select {
	case <-closed:
	case <-time.After(3 * time.Second):
	}
}

// close closes the instance in good order.
func (m *member) close() {
	ctx, cancel := m.w.soon()
	defer cancel()
	m.closed = true
	if err := m.Close(ctx); err != nil {
		m.w.failf("an instance cannot be closed: %w", err)
	}
}

// end closes what was opened, and leaves nothing behind. It returns what went wrong about
// that; instances that do not close count only if all went well so far.
func (w *world) end(well bool) error {
	close(w.over)
	w.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), w.opts.Patience)
	defer cancel()
	var errs []error
	for _, m := range w.members {
		if m.Instance == nil || m.closed {
			continue
		}
		bound := w.opts.Patience
		if m.dead {
			bound = time.Second
		}
		closing, cancel := context.WithTimeout(ctx, bound)
		if err := m.Close(closing); err != nil && well && !m.dead {
			errs = append(errs, fmt.Errorf("an instance cannot be closed: %w", err))
		}
		cancel()
	}
	returned := make(chan struct{})
	go func() { defer close(returned); w.calls.Wait() }()
	select {
	case <-returned:
	case <-ctx.Done():
		errs = append(errs, errors.New("calls do not return when their context has ended and their instance is closed"))
	}
	for _, m := range w.members {
		m.hangUp()
	}
	errs = append(errs, w.tidy(), w.etcd.Close())
	return errors.Join(errs...)
}

// tidy revokes the leases that are left, and deletes the keys.
func (w *world) tidy() error {
	ctx, cancel := context.WithTimeout(context.Background(), max(w.opts.Patience, 10*time.Second))
	defer cancel()
	for _, id := range w.leases() {
		if _, err := w.etcd.Revoke(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return fmt.Errorf("lease %x stays behind: %w", int64(id), err)
		}
	}
	if _, err := w.etcd.Delete(ctx, w.prefix, clientv3.WithPrefix()); err != nil {
		return fmt.Errorf("keys below %s stay behind: %w", w.prefix, err)
	}
	return nil
}

// leases returns the leases that were granted, and not revoked, through any client.
func (w *world) leases() (ids []clientv3.LeaseID) {
	wires := []*wire{w.wire}
	for _, m := range w.members {
		wires = append(wires, m.wire)
	}
	for _, wi := range wires {
		wi.mu.Lock()
		for id := range wi.leases {
			ids = append(ids, clientv3.LeaseID(id))
		}
		wi.mu.Unlock()
	}
	return ids
}

// keys returns all keys of the store, or those below a further part.
func (w *world) keys(part string) map[string]string {
	ctx, cancel := w.soon()
	defer cancel()
	resp, err := w.etcd.Get(ctx, w.prefix+part, clientv3.WithPrefix())
	if err != nil {
		w.failf("etcd cannot be read: %w", err)
	}
	found := map[string]string{}
	for _, kv := range resp.Kvs {
		found[string(kv.Key)] = string(kv.Value)
	}
	return found
}
