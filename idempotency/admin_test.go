package idempotency_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A list of one tenant's records shows no other's, and the empty scope is a scope.
func TestListOfOneScope(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, &idempotency.Options{SingleTenant: true})
	for _, scope := range []string{"", "a", "b"} {
		at, _, err := a.Begin(ctxT(t), idempotency.Key{Scope: scope, Op: "pay", ID: "1"}, nil)
		require.NoError(t, err)
		require.NoError(t, at.Commit(ctxT(t), nil))
	}
	for _, tt := range []struct {
		filter idempotency.Filter
		want   []string
	}{
		{idempotency.Filter{}, []string{"", "a", "b"}},
		{idempotency.Filter{Scope: new("a")}, []string{"a"}},
		{idempotency.Filter{Scope: new("c")}, nil},
		{idempotency.Filter{Scope: new("b"), State: idempotency.Done}, []string{"b"}},
		{idempotency.Filter{Scope: new("")}, []string{""}},
	} {
		var seen []string
		for r, err := range a.List(ctxT(t), tt.filter) {
			require.NoError(t, err)
			seen = append(seen, r.Scope)
		}
		require.ElementsMatch(t, tt.want, seen, "%+v", tt.filter)
		if tt.filter.Scope != nil && tt.filter.State == 0 {
			n, err := a.CountScope(ctxT(t), *tt.filter.Scope)
			require.NoError(t, err)
			require.EqualValues(t, len(tt.want), n)
		}
	}
}

// A process that has deleted an outcome does not get it from a member that lags behind.
func TestDeleteIsSeen(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(&concurrency.SessionOptions{TTL: 300 * time.Second}, nil)
	require.NoError(t, begin(t, a, key("1")).Commit(ctxT(t), []byte("x")))
	var deleted int64
	watch := f.Client().Watch(ctxT(t), f.Root, clientv3.WithPrefix())
	require.NoError(t, a.Delete(ctxT(t), a.Ref(key("1"))))
	for deleted == 0 {
		for _, ev := range got(t, watch, "the deletion").Events {
			if strings.HasSuffix(string(ev.Kv.Key), string(a.Ref(key("1")))) && ev.Type == clientv3.EventTypeDelete {
				deleted = ev.Kv.ModRevision
			}
		}
	}
	require.GreaterOrEqual(t, idempotency.Known(a.Store), deleted)
}

// A store whose session is closed returns ErrClosed and writes nothing.
func TestAdminOfAClosedSession(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	require.NoError(t, begin(t, a, key("1")).Commit(ctxT(t), nil))
	ref := a.Ref(key("1"))
	require.NoError(t, a.sess.Close(ctxT(t)))
	before := f.Values("/idempotency/")
	for _, err := range a.List(ctxT(t), idempotency.Filter{}) {
		require.ErrorIs(t, err, idempotency.ErrClosed)
	}
	_, _, err := a.Get(ctxT(t), ref)
	require.ErrorIs(t, err, idempotency.ErrClosed)
	require.ErrorIs(t, a.Delete(ctxT(t), ref), idempotency.ErrClosed)
	require.ErrorIs(t, a.Resolve(ctxT(t), ref, idempotency.NotDone()), idempotency.ErrClosed)
	_, err = a.Count(ctxT(t))
	require.ErrorIs(t, err, idempotency.ErrClosed)
	require.Equal(t, before, f.Values("/idempotency/"))
}
