package mirror_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// requests are n requests of one queue, as etcd lists them.
func requests(t testing.TB, n int) (keyspace.Queue, []*mvccpb.KeyValue) {
	t.Helper()
	space, err := keyspace.New("/p", "ns")
	require.NoError(t, err)
	keys := space.Queue(keyspace.Semaphore, "x")
	var kvs []*mvccpb.KeyValue
	for i := range n {
		value := record.Request{Nonce: "n", Owner: fmt.Sprint("holder-", i), Note: "what it is for", AtMS: 1}.Encode()
		kvs = append(kvs, &mvccpb.KeyValue{
			Key: []byte(keys.Slot(keyspace.Slot{Lease: 7, Number: i, Weight: 1})), Value: []byte(value), Lease: 7,
			CreateRevision: int64(10 + i), ModRevision: int64(10 + i),
		})
	}
	return keys, kvs
}

// The value of a request is decoded when it is asked for, and once: rank does not depend
// on it. (So a change of the bytes before that shows, and one after it does not.)
func TestValuesAreDecodedWhenAskedFor(t *testing.T) {
	t.Parallel()
	keys, kvs := requests(t, 2)
	m := mirror.New(keys, 1)
	m.Reset(kvs[:1], 10)
	m.Apply([]*clientv3.Event{{Type: clientv3.EventTypePut, Kv: kvs[1]}}, 11)
	v, _ := m.View()
	require.Len(t, v.Waiters, 1)
	for i, r := range append(v.Holders, v.Waiters...) {
		copy(kvs[i].Value, bytes.ReplaceAll(kvs[i].Value, []byte("holder-"), []byte("HOLDER-")))
		require.Equal(t, fmt.Sprint("HOLDER-", i), r.Record().Owner)
		clear(kvs[i].Value)
	}
	v, _ = m.View()
	for i, r := range append(v.Holders, v.Waiters...) {
		require.Equal(t, fmt.Sprint("HOLDER-", i), r.Record().Owner)
	}
}

// A key that is no request counts as a foreign key at the revision of its last write, until
// it is deleted or becomes a request.
func TestKeysThatAreForeign(t *testing.T) {
	t.Parallel()
	keys, kvs := requests(t, 2)
	m := mirror.New(keys, 1)
	shows := func(want ...mirror.ForeignKey) {
		t.Helper()
		foreign, listed := m.ForeignKeys()
		require.True(t, listed)
		require.Equal(t, want, foreign)
		v, _ := m.View()
		require.Equal(t, len(want), v.Foreign)
	}
	_, listed := m.ForeignKeys()
	require.False(t, listed)
	put := func(kv *mvccpb.KeyValue, lease, mod int64) {
		kv.Lease, kv.ModRevision = lease, mod
		m.Apply([]*clientv3.Event{{Type: clientv3.EventTypePut, Kv: kv}}, mod)
	}
	stray := kvs[1]
	stray.Lease = 0
	m.Reset(kvs, 11)
	shows(mirror.ForeignKey{Key: string(stray.Key), Mod: 11})
	put(stray, 0, 12)
	shows(mirror.ForeignKey{Key: string(stray.Key), Mod: 12})
	put(stray, 7, 13)
	shows()
	put(stray, 0, 14)
	shows(mirror.ForeignKey{Key: string(stray.Key), Mod: 14})
	m.Apply([]*clientv3.Event{{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte(keys.Requests + "never seen"), ModRevision: 15}}}, 15)
	shows(mirror.ForeignKey{Key: string(stray.Key), Mod: 14})
	m.Apply([]*clientv3.Event{{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: stray.Key, ModRevision: 16}}}, 16)
	shows()
}

// BenchmarkList is what a list of a queue with 1000 requests costs a mirror.
func BenchmarkList(b *testing.B) {
	keys, kvs := requests(b, 1000)
	m := mirror.New(keys, 1)
	b.ReportAllocs()
	for b.Loop() {
		m.Reset(kvs, 2000)
	}
}
