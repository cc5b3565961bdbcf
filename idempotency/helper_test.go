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
	brisk  = testkit.Brisk
)

// fixture is one etcd and a prefix of the test's own.
type fixture struct{ testkit.Fixture }

func shared(t testing.TB) fixture { return fixture{testkit.Shared(t)} }
func own(t testing.TB) fixture    { return fixture{testkit.Own(t, 1)} }

// instance is one process of the fleet, as etcd sees it.
type instance struct {
	*idempotency.Store
	sess   *concurrency.Session
	client *embedtest.Client
}

func (f fixture) instance(so *concurrency.SessionOptions, opts *idempotency.Options) instance {
	f.T.Helper()
	s, c := f.Session(so)
	st, err := idempotency.NewStore(s, "store", opts)
	require.NoError(f.T, err)
	return instance{st, s, c}
}

// working returns the records that name an attempt as working, be it in progress or lost with its session.
func (f fixture) working() (names []string) {
	f.T.Helper()
	for name, value := range f.Values("/record/") {
		if strings.HasPrefix(value, `{"v":1,"state":"working"`) {
			names = append(names, name)
		}
	}
	return names
}

// noneWorks waits until there is none.
func (f fixture) noneWorks() {
	f.T.Helper()
	require.Eventually(f.T, func() bool { return len(f.working()) == 0 }, soon, 5*time.Millisecond)
}

// guarded reports whether a Txn with the attempt's guard takes effect.
func (f fixture) guarded(at *idempotency.Attempt) bool {
	f.T.Helper()
	resp, err := f.Client().Txn(ctxT(f.T)).If(at.Guard()...).Then(clientv3.OpPut(f.Root+"effect", "")).Commit()
	require.NoError(f.T, err)
	return resp.Succeeded
}

// key is a key of the one tenant that most tests have.
func key(id string) idempotency.Key { return idempotency.Key{Scope: "tenant", Op: "pay", ID: id} }

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

func got[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	return testkit.Got(t, ch, what)
}
