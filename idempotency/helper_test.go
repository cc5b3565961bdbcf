package idempotency_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// soon bounds what should happen at once.
const soon = testkit.Soon

var (
	closed = testkit.Closed
	ctxT   = testkit.Context
	quick  = testkit.Quick
	brisk  = testkit.Brisk
)

// fixture is one etcd and a prefix of the test's own.
type fixture struct {
	*embedtest.Cluster
	t      testing.TB
	prefix string
}

func shared(t testing.TB) fixture {
	c := embedtest.Shared(t)
	return fixture{Cluster: c, t: t, prefix: c.Prefix(t)}
}

func own(t testing.TB) fixture {
	c := embedtest.Start(t, nil)
	if c.External() {
		t.Skip("the external cluster is not this test's own")
	}
	return fixture{Cluster: c, t: t, prefix: c.Prefix(t)}
}

// instance is one process of the fleet, as etcd sees it.
type instance struct {
	*idempotency.Store
	sess   *concurrency.Session
	client *embedtest.Client
}

func (f fixture) instance(so *concurrency.SessionOptions, opts *idempotency.Options) instance {
	f.t.Helper()
	s, c := testkit.Session(f.t, f.Cluster, f.prefix, so)
	st, err := idempotency.NewStore(s, "store", opts)
	require.NoError(f.t, err)
	return instance{st, s, c}
}

// key is a key of the one tenant that most tests have.
func key(id string) idempotency.Key { return idempotency.Key{Scope: "tenant", Op: "pay", ID: id} }

// keys lists the keys of the fixture that contain a text.
func (f fixture) keys(part string) []string {
	f.t.Helper()
	return testkit.Keys(f.t, f.Cluster, f.prefix, part)
}

// none waits until no such key stands.
func (f fixture) none(part string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return len(f.keys(part)) == 0 }, soon, time.Millisecond, part)
}

// begin begins an attempt that the test holds.
func begin(t testing.TB, in instance, k idempotency.Key, opts ...idempotency.Option) *idempotency.Attempt {
	t.Helper()
	a, rec, err := in.Begin(ctxT(t), k, "payload", opts...)
	require.NoError(t, err)
	require.Nil(t, rec)
	require.NotNil(t, a)
	return a
}

// replayed asks for an outcome that must be recorded.
func replayed(t testing.TB, in instance, k idempotency.Key) *idempotency.Outcome {
	t.Helper()
	a, rec, err := in.Begin(ctxT(t), k, "payload", idempotency.Wait(0))
	require.NoError(t, err)
	require.Nil(t, a, "a new attempt")
	return rec
}

// rejected asks for a request that must be in progress.
func rejected(t testing.TB, in instance, k idempotency.Key) {
	t.Helper()
	a, _, err := in.Begin(ctxT(t), k, "payload", idempotency.Wait(0))
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	require.Nil(t, a)
}

// dump is all that stands of the fixture's stores.
func (f fixture) dump() map[string]string {
	f.t.Helper()
	resp, err := f.Client().Get(ctxT(f.t), f.prefix, clientv3.WithPrefix())
	require.NoError(f.t, err)
	found := map[string]string{}
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Key), "/idem/") {
			found[string(kv.Key)] = string(kv.Value)
		}
	}
	return found
}

func got[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	return testkit.Got(t, ch, what)
}
