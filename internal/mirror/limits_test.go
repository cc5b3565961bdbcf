package mirror_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/record"
)

// N3: a view whose default is out of date takes requests for admitted that are not. It shows them as
// waiting when it learns the default, and so does a waiter that asks then.
func TestTrapN3DefaultAfterTheRequest(t *testing.T) {
	t.Parallel()
	space, err := keyspace.New("/mirror", "test")
	require.NoError(t, err)
	keys := space.Limiter("l").Key("k")
	request := func(n int, rev int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(keys.Slot(keyspace.Slot{Lease: 7, Number: n, Weight: 1})), Value: []byte("{}"),
			CreateRevision: rev, ModRevision: rev, Version: 1, Lease: 7}
	}
	base := func(r record.Limit, rev int64) mirror.LimitRecord { return mirror.LimitRecord{Limit: r, Rev: rev} }
	m := mirror.New(keys, 0)
	m.SetBase(base(record.Limit{Limit: 2, Settled: true}, 10))
	m.Reset([]*mvccpb.KeyValue{request(0, 11)}, 11)
	// The default is lowered at revision 12, which the view does not know yet.
	late := request(1, 13)
	m.Apply([]*clientv3.Event{{Type: clientv3.EventTypePut, Kv: late}}, 13)
	found := mirror.Found{Known: true, Ahead: 1}
	w := m.Wait(string(late.Key), 13, 1, found)
	require.Equal(t, mirror.Admitted, <-w.Outcome(), "by what the view knows")
	require.Equal(t, int64(2), w.UpTo(), "what has to be confirmed")

	m.SetBase(base(record.Limit{Limit: 1, Previous: 2}, 12))
	w = m.Wait(string(late.Key), 13, 1, found)
	require.Empty(t, w.Outcome())
	v, _ := m.View()
	require.Equal(t, []int64{1, 1, 1, 1}, []int64{v.Limit, v.Used, int64(len(v.Holders)), int64(len(v.Waiters))}, "it came after the change: %s", fmt.Sprint(v))
	m.SetBase(base(record.Limit{Limit: 2, Settled: true}, 10))
	require.Empty(t, w.Outcome(), "an older default changes nothing")

	m.Apply([]*clientv3.Event{{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: request(0, 11).Key, ModRevision: 14}}}, 14)
	require.Equal(t, mirror.Admitted, <-w.Outcome())
	require.Equal(t, int64(1), w.UpTo())
}

// TestBriefOfALoweredLimit: while a limit that was lowered does not say which requests an earlier one had admitted, those
// that may hold count as holders in a Brief as in a View (A478 in internal/proof/tested-failures.md).
func TestBriefOfALoweredLimit(t *testing.T) {
	t.Parallel()
	space, err := keyspace.New("/mirror", "test")
	require.NoError(t, err)
	keys := space.Limiter("l").Key("k")
	request := func(n int, rev int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(keys.Slot(keyspace.Slot{Lease: 7, Number: n, Weight: 1})), Value: []byte("{}"),
			CreateRevision: rev, ModRevision: rev, Version: 1, Lease: 7}
	}
	m := mirror.New(keys, 0)
	m.SetBase(mirror.LimitRecord{Limit: record.Limit{Previous: 2}, Rev: 13})
	all := []*mvccpb.KeyValue{request(0, 11), request(1, 12), request(2, 14)}
	m.Reset(all, 14)
	v, _ := m.View()
	b, _ := m.Brief("", 0, 0)
	require.Equal(t, []int64{2, 1}, []int64{v.Used, int64(len(v.Waiters))})
	require.Equal(t, []int64{2, 1}, []int64{b.Used, int64(b.Waiting)})
	b, _ = m.Brief(string(all[1].Key), 12, 0)
	require.True(t, b.Waits)
	require.Equal(t, []int64{1, 2}, []int64{b.Used, int64(b.Waiting)}, "before one that is not known to hold")
	m.SetBase(mirror.LimitRecord{Limit: record.Limit{Previous: 2, Settled: true}, Rev: 15})
	b, _ = m.Brief("", 0, 0)
	require.Equal(t, []int64{0, 3}, []int64{b.Used, int64(b.Waiting)})
}
