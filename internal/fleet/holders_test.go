package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// history is a namespace to which keys are written, at one revision after the other.
type history struct {
	*State
	t        testing.TB
	revision int64
}

func newHistory(t testing.TB) *history {
	t.Helper()
	space, err := keyspace.New("/etcdkit", "shop")
	require.NoError(t, err)
	return &history{State: NewState(space, false), t: t}
}

// write writes a key that is not there yet, and returns its revision.
func (h *history) write(key, value string, lease, now int64) int64 {
	h.revision++
	h.Put(&mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: h.revision, ModRevision: h.revision, Lease: lease}, now)
	h.asOf = now
	return h.revision
}

// remove removes keys at one revision.
func (h *history) remove(now int64, keys ...string) {
	h.revision++
	for _, key := range keys {
		require.Contains(h.t, h.keys, key)
		h.Remove(key, h.revision, now)
	}
	h.asOf = now
}

// open begins a session.
func (h *history) open(lease int64, owner string) (alive string) {
	alive = h.space.Session(lease).Alive()
	h.write(alive, record.Clock{Owner: owner, AtMS: 1}.Encode(), lease, 1)
	return alive
}

const second = int64(time.Second / time.Millisecond)

// bounded is a request with a MaxHold of a second.
func bounded(now int64) string {
	return record.Request{Nonce: "n", AtMS: now, MaxHoldMS: second}.Encode()
}

// A403: while a limit was deleted or unreadable, each request that might hold counted as one that had been granted then. When the
// limit was there again and such a request was granted, it was overdue at once, and while the limit was away those that had never
// been granted were, too.
func TestOverdueBesideAnUnknownLimit(t *testing.T) {
	t.Parallel()
	const now = 1000 * second
	for what, broken := range map[string]string{"deleted": "", "unreadable": "\x00"} {
		h := newHistory(t)
		keys := h.space.Queue(keyspace.Semaphore, "charge")
		slot := func(n int) string { return keys.Slot(keyspace.Slot{Lease: 7, Number: n, Weight: 1}) }
		h.write(keys.Limit, record.Limit{Limit: 1, AtMS: 1}.Encode(), 0, now)
		h.write(slot(0), bounded(now), 7, now)
		h.write(slot(1), bounded(now), 7, now)
		h.Settle(now)
		overdue := func(at int64) int {
			h.Settle(at)
			return h.Queues[QueueID{keyspace.Semaphore, "charge"}].Now.Overdue(at)
		}
		require.Equal(t, 1, overdue(now+2*second), what)

		h.remove(now+5*second, keys.Limit)
		if broken != "" {
			h.write(keys.Limit, broken, 0, now+5*second)
		}
		require.Equal(t, 1, overdue(now+10*second), "%s: one is known to hold", what)
		require.EqualValues(t, 2, h.Queues[QueueID{keyspace.Semaphore, "charge"}].Now.Used, "each may hold")
		require.Equal(t, 1, overdue(now+20*second), what)

		if broken != "" {
			h.remove(now+30*second, keys.Limit)
		}
		h.write(keys.Limit, record.Limit{Limit: 1, AtMS: 1, Through: 2}.Encode(), 0, now+30*second)
		require.Equal(t, 1, overdue(now+30*second), what)
		h.remove(now+60*second, slot(0))
		require.Zero(t, overdue(now+60*second), "%s: the other one is granted", what)
		require.Zero(t, overdue(now+61*second), what)
		require.Equal(t, 1, overdue(now+62*second), what)
		require.Equal(t, now+30*second, h.Queues[QueueID{keyspace.Semaphore, "charge"}].Now.OldestHold, "%s: it was granted after the change before", what)
	}
}

// A403: the same of a limit that was lowered, when an exporter that begins then cannot know which requests hold.
func TestOverdueBesideALimitThatWasLowered(t *testing.T) {
	t.Parallel()
	const now = 1000 * second
	h := newHistory(t)
	keys := h.space.Queue(keyspace.Semaphore, "charge")
	slot := func(n int) string { return keys.Slot(keyspace.Slot{Lease: 7, Number: n, Weight: 1}) }
	h.write(slot(0), bounded(now), 7, now)
	h.write(slot(1), bounded(now), 7, now)
	h.write(keys.Limit, record.Limit{Limit: 1, AtMS: 1, Previous: 2}.Encode(), 0, now)
	h.Settle(now)
	q := h.Queues[QueueID{keyspace.Semaphore, "charge"}]
	require.EqualValues(t, 2, q.Now.Used, "each may hold")
	require.Equal(t, 1, q.Now.Overdue(now+2*second))
	require.Equal(t, now, q.Now.OldestHold)
}

// A407: a limit that cannot be read counted as a foreign key, and its queue and the keys of its limiter as full.
func TestUnreadableLimit(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	keys, lim := h.space.Queue(keyspace.Semaphore, "charge"), h.space.Limiter("api")
	h.write(keys.Limit, `{"v":2,"limit":3}`, 0, 1)
	h.write(keys.Slot(keyspace.Slot{Lease: 7, Weight: 1}), bounded(1), 7, 1)
	h.write(keys.Requests+"other", "x", 0, 1)
	h.write(lim.Default, "\x00", 0, 1)
	for _, key := range []string{"a", "b"} {
		h.write(lim.Key(key).Slot(keyspace.Slot{Lease: 7, Weight: 1}), bounded(1), 7, 1)
	}
	h.write(lim.Key("own").Limit, "\x00", 0, 1)
	h.Settle(1)
	q := h.Queues[QueueID{keyspace.Semaphore, "charge"}]
	require.Equal(t, record.UnreadableError{Key: keys.Limit, Version: 2}, q.Now.Unreadable)
	require.Equal(t, []any{1, false, false}, []any{q.Now.Foreign, q.Now.Known, q.Now.Full})
	sum := h.Limiters["api"].Sum(1)
	require.Equal(t, []int{0, 0, 2}, []int{sum.Foreign, sum.FullKeys, sum.Unreadable}, "the default, and that of a key")
	require.Equal(t, record.UnreadableError{Key: lim.Default}, h.Limiters["api"].Keys["a"].Now.Unreadable)

	h.remove(1, keys.Limit)
	h.Settle(1)
	require.NoError(t, q.Now.Unreadable)
}
