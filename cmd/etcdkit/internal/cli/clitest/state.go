package clitest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// NothingLeft asserts that no key is left below the prefix.
func (f *Fixture) NothingLeft() {
	f.T.Helper()
	require.Empty(f.T, testkit.Keys(f.T, f.Etcd, f.Prefix, ""))
}

// Service executes a command that lasts until ctx ends, and returns its first line.
func (f *Fixture) Service(ctx context.Context, args ...string) (line string, done <-chan Result) {
	f.T.Helper()
	read, write := io.Pipe()
	ended := make(chan Result, 1)
	go func() {
		var errs strings.Builder
		code := cli.Execute(ctx, f.Args(args...), verb.Streams{In: strings.NewReader(""), Out: write, Err: &errs})
		_ = write.Close()
		ended <- Result{Code: code, Err: errs.String()}
	}()
	lines := bufio.NewReader(read)
	line, err := lines.ReadString('\n')
	require.NoError(f.T, err)
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return strings.TrimSuffix(line, "\n"), ended
}

// Session starts a session of a service.
func (f *Fixture) Session(owner string) *concurrency.Session {
	f.T.Helper()
	return testkit.SessionOn(f.T, f.Etcd.NewClient(f.T, nil).Client, f.Prefix, &concurrency.SessionOptions{Owner: owner})
}

// Permit returns a permit that was granted.
func (f *Fixture) Permit(p *concurrency.Permit, err error) *concurrency.Permit {
	f.T.Helper()
	require.NoError(f.T, err)
	return p
}

// Status reads a mutex.
func (f *Fixture) Status(name string) concurrency.Status {
	f.T.Helper()
	m, err := concurrency.NewMutex(f.Session("test"), name)
	require.NoError(f.T, err)
	st, err := m.Status(testkit.Context(f.T), concurrency.CheckLeases())
	require.NoError(f.T, err)
	return st
}

// Locker returns a Locker of a service.
func (f *Fixture) Locker(owner string) *schedlock.Locker {
	f.T.Helper()
	l, err := schedlock.New(f.Session(owner), nil)
	require.NoError(f.T, err)
	return l
}

// Tick is a fire time of this day.
func Tick(n int) time.Time {
	return time.Now().Add(-time.Hour).Truncate(time.Hour).Add(time.Duration(n) * 5 * time.Minute)
}

// Nothing is a run that does nothing.
func Nothing(context.Context, *schedlock.Run) error { return nil }

// Active starts a run that lasts until it is to end, or its context ends. done gets what the call returns.
func (f *Fixture) Active(l *schedlock.Locker, name string, opts ...schedlock.CallOption) (end func(), done <-chan error) {
	f.T.Helper()
	ended, started, returned := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := l.Do(testkit.Context(f.T), name, func(ctx context.Context, _ *schedlock.Run) error {
			close(started)
			select {
			case <-ended:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, opts...)
		returned <- err
	}()
	testkit.Closed(f.T, started, "the run starts")
	return func() { close(ended) }, returned
}

// Crowd fills a semaphore with a limit of 2: two holders, and two requests that wait. It returns the
// permits.
func (f *Fixture) Crowd(name string) (held []*concurrency.Permit) {
	ctx := testkit.Context(f.T)
	owners := []string{"web-7", "web-9", "web-2", "web-3"}
	for i, owner := range owners {
		sm, err := concurrency.NewSemaphore(f.Session(owner), name, 2, nil)
		require.NoError(f.T, err)
		if i < 2 {
			held = append(held, f.Permit(sm.Acquire(ctx, concurrency.Note("order "+owner), concurrency.ID(owner))))
			f.Shows(held[i].Token(), []string{"4711", "4712"}[i])
			continue
		}
		go func() { _, _ = sm.Acquire(ctx) }()
		for st, err := range sm.Watch(ctx) {
			require.NoError(f.T, err)
			if n := len(st.Waiters); n == i-1 {
				f.Shows(st.Waiters[n-1].Token, []string{"4713", "4714"}[i-2])
				break
			}
		}
	}
	return held
}

// StoreOf is a store of a process.
func (f *Fixture) StoreOf(owner, name string, opts *idempotency.Options) *idempotency.Store {
	f.T.Helper()
	s, err := idempotency.NewStore(f.Session(owner), name, opts)
	require.NoError(f.T, err)
	return s
}

// Begin begins an attempt.
func (f *Fixture) Begin(s *idempotency.Store, key idempotency.Key, opts ...idempotency.Option) *idempotency.Attempt {
	f.T.Helper()
	a, _, err := s.Begin(testkit.Context(f.T), key, "payload", opts...)
	require.NoError(f.T, err)
	require.NotNil(f.T, a)
	return a
}

// Order is the key of an order.
func Order(id string) idempotency.Key {
	return idempotency.Key{Scope: "tenant-7", Op: "POST /orders", ID: id}
}

// Lost leaves a request whose process has died.
func (f *Fixture) Lost(store string, key idempotency.Key, opts ...idempotency.Option) {
	f.T.Helper()
	client := f.Etcd.NewClient(f.T, nil)
	dies := testkit.SessionOn(f.T, client.Client, f.Prefix, &concurrency.SessionOptions{Owner: "web-9"})
	s, err := idempotency.NewStore(dies, store, &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(f.T, err)
	a := f.Begin(s, key, append(opts, idempotency.Note("order "+key.ID))...)
	lease := dies.Lease()
	require.NoError(f.T, client.Close()) // nothing more is sent: a session that loses its lease takes another one
	if _, err = f.Etcd.Client().Revoke(testkit.Context(f.T), lease); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		require.NoError(f.T, err)
	}
	testkit.Closed(f.T, a.Context().Done(), "the attempt is lost")
}

// Orders fills a store with a request in each state. The numbers of records and their order do not
// depend on the run: references are hashes.
func (f *Fixture) Orders() *idempotency.Store {
	ctx := testkit.Context(f.T)
	s := f.StoreOf("web-7", "orders", nil)
	done := f.Begin(s, Order("1"), idempotency.Via("do"), idempotency.Note("order 1"))
	require.NoError(f.T, done.Commit(ctx, []byte(`{"charge":7}`)))
	f.Shows(done.Token(), "4711")
	failed := f.Begin(s, Order("2"))
	require.NoError(f.T, failed.Fail(ctx, "card declined", nil))
	f.Shows(failed.Token(), "4712")
	f.Begin(s, Order("4"))
	f.Lost("orders", Order("5"))
	return s
}

// Waiter waits for one that waits.
func (f *Fixture) Waiter(q interface {
	Status(ctx context.Context, opts ...concurrency.StatusOption) (concurrency.Status, error)
}) (waits concurrency.Request) {
	require.Eventually(f.T, func() bool {
		st, err := q.Status(testkit.Context(f.T))
		if err == nil && len(st.Waiters) == 1 {
			waits = st.Waiters[0]
		}
		return waits.Token != 0
	}, testkit.Soon, 5*time.Millisecond, "it waits")
	return waits
}

// Forge replaces a text in all values below the prefix, as no session would write it.
func (f *Fixture) Forge(text, by string) {
	f.T.Helper()
	ctx := testkit.Context(f.T)
	resp, err := f.Etcd.Client().Get(ctx, f.Prefix, clientv3.WithPrefix())
	require.NoError(f.T, err)
	for _, kv := range resp.Kvs {
		forged := strings.ReplaceAll(string(kv.Value), text, by)
		_, err := f.Etcd.Client().Put(ctx, string(kv.Key), forged, clientv3.WithLease(clientv3.LeaseID(kv.Lease)))
		require.NoError(f.T, err)
	}
}
