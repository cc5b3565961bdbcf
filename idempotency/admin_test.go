package idempotency_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// Who asks for one tenant sees no other: a scope counts without HasScope, which is for the
// empty one.
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
		{idempotency.Filter{Scope: "a"}, []string{"a"}},
		{idempotency.Filter{Scope: "a", HasScope: true}, []string{"a"}},
		{idempotency.Filter{Scope: "c"}, nil},
		{idempotency.Filter{Scope: "b", State: idempotency.Done}, []string{"b"}},
		{idempotency.Filter{HasScope: true}, []string{""}},
	} {
		var seen []string
		for r, err := range a.List(ctxT(t), tt.filter) {
			require.NoError(t, err)
			seen = append(seen, r.Scope)
		}
		require.ElementsMatch(t, tt.want, seen, "%+v", tt.filter)
	}
}
