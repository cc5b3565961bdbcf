package idempotency_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// List reads a bounded number of records at once, whatever their results weigh, and fewer
// where the client takes no longer answers: down to one. Only a record that is larger than
// the client takes ends it.
func TestListOfLargeResults(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	want := map[idempotency.Ref]idempotency.State{}
	large := bytes.Repeat([]byte("x"), 100<<10)
	for n := range 40 {
		k := key(fmt.Sprint(n))
		at := begin(t, a, k)
		switch n % 3 {
		case 0:
			want[a.Ref(k)] = idempotency.InProgress
		default:
			require.NoError(t, at.Commit(ctxT(t), large))
			want[a.Ref(k)] = idempotency.Done
		}
	}
	for _, tt := range []struct {
		accepts int // bytes
		fails   bool
	}{{accepts: 4<<20 + 64<<10}, {accepts: 1 << 20}, {accepts: 128 << 10}, {accepts: 64 << 10, fails: true}} {
		t.Run(fmt.Sprint(tt.accepts), func(t *testing.T) {
			c := f.NewClient(t, &embedtest.ClientOptions{Configure: func(c *clientv3.Config) { c.MaxCallRecvMsgSize = tt.accepts }})
			b, err := idempotency.NewStore(f.SessionOn(c.Client, nil), "store", nil)
			require.NoError(t, err)
			seen := map[idempotency.Ref]idempotency.State{}
			var failed error
			for r, err := range b.List(ctxT(t), idempotency.Filter{}) {
				require.NoError(t, failed, "an error is the last")
				if failed = err; err == nil {
					require.NotContains(t, seen, r.Ref)
					seen[r.Ref] = r.State
				}
			}
			if tt.fails {
				require.Equal(t, codes.ResourceExhausted, status.Code(failed))
				require.Less(t, len(seen), len(want))
			} else {
				require.NoError(t, failed)
				require.Equal(t, want, seen)
			}
		})
	}
}

// Refs reads some records, in the order of the references, and says what is wrong with those that cannot be any.
func TestListOfRefs(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	var refs []idempotency.Ref
	for n := range 70 {
		k := key(fmt.Sprint(n))
		if at := begin(t, a, k); n%2 == 0 {
			require.NoError(t, at.Commit(ctxT(t), nil))
		}
		refs = append([]idempotency.Ref{a.Ref(k)}, refs...)
	}
	list := func(filter idempotency.Filter) (found []idempotency.Ref, err error) {
		for r, e := range a.List(ctxT(t), filter) {
			if err = e; e == nil {
				found = append(found, r.Ref)
			}
		}
		return found, err
	}
	found, err := list(idempotency.Filter{Refs: append([]idempotency.Ref{a.Ref(key("none"))}, refs...)})
	require.NoError(t, err)
	require.Equal(t, refs, found)
	found, err = list(idempotency.Filter{Refs: refs, State: idempotency.InProgress})
	require.NoError(t, err)
	require.Len(t, found, 35)
	found, err = list(idempotency.Filter{Refs: []idempotency.Ref{}})
	require.NoError(t, err)
	require.Empty(t, found)
	_, err = list(idempotency.Filter{Refs: []idempotency.Ref{"x"}})
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	_, err = list(idempotency.Filter{Refs: refs, Scope: new("tenant")})
	require.ErrorIs(t, err, idempotency.ErrInvalid)
}
