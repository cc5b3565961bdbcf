package aesgcm_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// store is that of a process without a cache.
func store(f testkit.Fixture, name string, c idempotency.Codec, old ...idempotency.Codec) *idempotency.Store {
	f.T.Helper()
	s, _ := f.Session(nil)
	st, err := idempotency.NewStore(s, name, &idempotency.Options{Codec: c, OldCodecs: old, CacheBytes: -1, SingleTenant: true})
	require.NoError(f.T, err)
	return st
}

func request(id string) idempotency.Key { return idempotency.Key{Op: "pay", ID: id} }

func pay(f testkit.Fixture, st *idempotency.Store, id, value string) (string, error) {
	res, err := idempotency.Do(testkit.Context(f.T), st, request(id), nil, func(context.Context, *idempotency.Attempt) (string, error) { return value, nil })
	return res.Value, err
}

// record returns the key of a request's record, its head and its body.
func record(f testkit.Fixture, st *idempotency.Store, id string) (kv clientv3.KV, key string, lease clientv3.LeaseID, head, body []byte) {
	f.T.Helper()
	kv = f.Client()
	resp, err := kv.Get(testkit.Context(f.T), f.Root, clientv3.WithPrefix())
	require.NoError(f.T, err)
	for _, found := range resp.Kvs {
		if strings.HasSuffix(string(found.Key), string(st.Ref(request(id)))) && strings.Contains(string(found.Key), "/"+st.Name()+"/") {
			head, body, _ = bytes.Cut(found.Value, []byte{'\n'})
			return kv, string(found.Key), clientv3.LeaseID(found.Lease), head, body
		}
	}
	require.Fail(f.T, "no record", id)
	return
}

// D11: results are not in the clear in etcd, and a writer to etcd cannot put the result of one request,
// or of another store, in place of that of another: it is not decrypted, and nothing runs.
func TestResultsAreBoundToTheirRequest(t *testing.T) {
	t.Parallel()
	f := testkit.Shared(t)
	c := codec(t, "1", newKey())
	st, other := store(f, "payments", c), store(f, "refunds", c)
	for _, id := range []string{"alice", "carol"} {
		_, err := pay(f, st, id, "receipt of "+id)
		require.NoError(t, err)
	}
	_, err := pay(f, other, "alice", "refunds of alice")
	require.NoError(t, err)
	for name, value := range f.Values("") {
		require.NotContains(t, value, "receipt", name)
	}

	ctx := testkit.Context(t)
	kv, at, lease, head, own := record(f, st, "alice")
	_, _, _, _, carols := record(f, st, "carol")
	_, _, _, _, refund := record(f, other, "alice")
	for name, body := range map[string][]byte{"of another request": carols, "of another store": refund} {
		require.Len(t, body, len(own), name)
		_, err := kv.Put(ctx, at, string(head)+"\n"+string(body), clientv3.WithLease(lease))
		require.NoError(t, err)
		_, err = pay(f, st, "alice", "runs again")
		require.ErrorIs(t, err, idempotency.ErrUnreadable, name)
	}
	_, err = kv.Put(ctx, at, string(head)+"\n"+string(own), clientv3.WithLease(lease))
	require.NoError(t, err)
	require.Eventually(t, func() bool { // a watch may bring what was stored a moment ago
		v, err := pay(f, st, "alice", "runs again")
		return err == nil && v == "receipt of alice"
	}, testkit.Soon, 10*time.Millisecond)
}

// While a key is changed, processes before and after each rollout read what the others have written.
func TestRotation(t *testing.T) {
	t.Parallel()
	one, two, plain := codec(t, "1", newKey()), codec(t, "2", newKey()), idempotency.Plain
	type options struct {
		codec idempotency.Codec
		old   []idempotency.Codec
	}
	for name, steps := range map[string][]options{
		"to another key": {{one, nil}, {one, []idempotency.Codec{two}}, {two, []idempotency.Codec{one}}},
		"the first key":  {{nil, nil}, {nil, []idempotency.Codec{two}}, {two, []idempotency.Codec{plain}}},
	} {
		for n := range len(steps) - 1 {
			f := testkit.Shared(t)
			before, after := store(f, "s", steps[n].codec, steps[n].old...), store(f, "s", steps[n+1].codec, steps[n+1].old...)
			for i, pair := range [][2]*idempotency.Store{{before, after}, {after, before}} {
				id := string(rune('a' + i))
				_, err := pay(f, pair[0], id, "receipt")
				require.NoError(t, err, name)
				v, err := pay(f, pair[1], id, "runs again")
				require.NoError(t, err, "%s, step %d", name, n)
				require.Equal(t, "receipt", v)
			}
		}
	}
	f := testkit.Shared(t)
	_, err := pay(f, store(f, "s", one), "k", "receipt")
	require.NoError(t, err)
	for name, st := range map[string]*idempotency.Store{"the other key": store(f, "s", two), "none": store(f, "s", nil)} {
		_, err := pay(f, st, "k", "runs again")
		require.ErrorIs(t, err, idempotency.ErrUnreadable, name)
	}
}

// Of two keys with one id, one would never be found (D17 in internal/proof/tested-failures.md): a Store with both is refused.
func TestTwoKeysOfOneID(t *testing.T) {
	t.Parallel()
	s, _ := testkit.Shared(t).Session(nil)
	one, other := codec(t, "1", newKey()), codec(t, "1", newKey())
	_, err := idempotency.NewStore(s, "payments", &idempotency.Options{Codec: one, OldCodecs: []idempotency.Codec{other}})
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.ErrorContains(t, err, `"aes-256-gcm/1"`)
	_, err = idempotency.NewStore(s, "payments", &idempotency.Options{OldCodecs: []idempotency.Codec{one, idempotency.Plain, other}})
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	_, err = idempotency.NewStore(s, "payments", &idempotency.Options{Codec: one, OldCodecs: []idempotency.Codec{one, idempotency.Plain}})
	require.NoError(t, err, "the list of all keys may have the present one")
}
