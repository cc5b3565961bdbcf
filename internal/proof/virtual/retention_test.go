package virtual

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
)

// recording reports whether a message is the Txn that records the outcome of an attempt, or that
// releases it for its payload.
func recording(m etcdfake.Message) bool {
	r, ok := m.Body.(*etcdserverpb.TxnRequest)
	if !ok || len(r.Success) == 0 {
		return false
	}
	put := r.Success[0].GetRequestPut()
	return strings.Contains(string(put.GetKey()), "/record/") && !strings.HasPrefix(string(put.GetValue()), `{"v":1,"state":"working"`)
}

// whileRecording has the messages that record an outcome meet a fate until a time has passed.
func (d *desk) whileRecording(lasts time.Duration, fate etcdfake.Fault) {
	until := time.Now().Add(lasts)
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if recording(m) && time.Now().Before(until) {
			return fate
		}
		return etcdfake.Fault{}
	})
}

// kept are the keys of requests and of the parts of their results.
func (d *desk) kept() (keys []string) {
	for _, key := range d.server.Keys("") {
		if strings.Contains(key, "/idempotency/") {
			keys = append(keys, key)
		}
	}
	return keys
}

// keptFor checks that so many keys of outcomes are kept until a time, and for less than twice as long.
func (d *desk) keptFor(from time.Time, retain time.Duration, keys int) {
	d.t.Helper()
	time.Sleep(time.Until(from.Add(retain)))
	require.Len(d.t, d.kept(), keys)
	time.Sleep(retain)
	require.Empty(d.t, d.kept())
}

// sizes are results, and in how many keys they are.
var sizes = map[string]struct {
	bytes int
	keys  int
}{"small": {1, 1}, "in parts": {2<<20 + 1, 4}}

// retentions are some that are not rounded up.
var retentions = []time.Duration{10 * time.Second, 64 * time.Minute}

// S5: an outcome whose write takes long is on a lease that was granted before it. It is moved to
// another lease, so that it is kept for the whole retention, counted from the recording.
func TestTrapS5LateCommit(t *testing.T) {
	for name, size := range sizes {
		for _, retain := range retentions {
			t.Run(name+", for "+retain.String(), func(t *testing.T) {
				bubble(t, 1, func(t *testing.T, on []*desk) {
					s := on[0].storeOf(idempotency.Options{Retain: retain, CacheBytes: -1})
					at := started(t, s, order("1"))
					on[0].whileRecording(retain, etcdfake.Fault{Err: etcdfake.ErrUnavailable, DropRequest: true})
					begun := time.Now()
					require.NoError(t, at.Commit(t.Context(), make([]byte, size.bytes)))
					recorded := time.Now()
					require.GreaterOrEqual(t, recorded.Sub(begun), retain)
					_, rec, err := s.Begin(t.Context(), order("1"), "payload")
					require.NoError(t, err)
					require.Len(t, rec.Value, size.bytes)
					on[0].keptFor(recorded, retain, size.keys)
				})
			})
		}
	}
}

// An outcome whose write takes long, and whose session is closed as soon as it is reported, is kept for
// the whole retention: it is reported when it is on a lease that lives that long.
func TestRetentionWhenClosed(t *testing.T) {
	const retain = 10 * time.Second
	failed := errors.New("failed")
	commit := func(bytes int) func(*testing.T, *idempotency.Store, func()) error {
		return func(t *testing.T, s *idempotency.Store, slow func()) error {
			at := started(t, s, order("1"), idempotency.OnLost(idempotency.Refuse))
			slow()
			return at.Commit(t.Context(), make([]byte, bytes))
		}
	}
	for name, tt := range map[string]struct {
		keys int
		work func(t *testing.T, s *idempotency.Store, slow func()) error
	}{
		"a result": {sizes["small"].keys, commit(sizes["small"].bytes)},
		"in parts": {sizes["in parts"].keys, commit(sizes["in parts"].bytes)},
		"a failure, forgotten": {1, func(t *testing.T, s *idempotency.Store, slow func()) error {
			_, err := idempotency.Do(t.Context(), s, order("1"), "payload", func(context.Context, *idempotency.Attempt) (int, error) {
				slow()
				return 0, failed
			})
			require.ErrorIs(t, err, failed)
			require.NotErrorIs(t, err, idempotency.ErrNotRecorded)
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				const late = 3 * time.Second
				var begun time.Time
				err := tt.work(t, on[0].storeOf(idempotency.Options{Retain: retain}), func() {
					begun = time.Now()
					var once sync.Once
					on[0].client.Inject(func(m etcdfake.Message) (fate etcdfake.Fault) {
						if recording(m) {
							once.Do(func() { fate.RequestDelay = late })
						}
						// The next lease takes its time: nothing that continues in the background has it
						// before Close has ended.
						if m.Method == "LeaseGrant" {
							fate.ResponseDelay = 300 * time.Millisecond
						}
						return fate
					})
				})
				require.NoError(t, err)
				reported := time.Now()
				require.GreaterOrEqual(t, reported.Sub(begun), late)
				require.NoError(t, on[0].session.Close(t.Context()))
				on[0].keptFor(reported, retain, tt.keys)
			})
		})
	}
}

// An outcome was recorded by the first try, whose answer was lost, on a lease that is old by now; the
// next try uses a fresh lease. The lease of the record counts.
func TestRetentionAfterALostAnswer(t *testing.T) {
	for name, size := range sizes {
		for _, retain := range retentions {
			t.Run(name+", for "+retain.String(), func(t *testing.T) {
				bubble(t, 2, func(t *testing.T, on []*desk) {
					a, b := on[0].storeOf(idempotency.Options{Retain: retain}), on[1].storeOf(idempotency.Options{CacheBytes: -1})
					at := started(t, a, order("1"))
					late := retain/20 + 4*time.Second // more than the lease lives longer than retain
					on[0].whileRecording(late, etcdfake.Fault{Err: rpctypes.ErrGRPCTooManyOps})
					result := make([]byte, size.bytes)
					require.ErrorIs(t, at.Commit(t.Context(), result), idempotency.ErrNotRecorded)
					require.Len(t, on[0].kept(), size.keys, "it is recorded")
					time.Sleep(late)
					from := time.Now()
					require.NoError(t, on[0].session.Close(t.Context()), "it waits for the attempt")
					require.EqualValues(t, 1, a.Stats().Done)
					_, rec, err := b.Begin(t.Context(), order("1"), "payload")
					require.NoError(t, err)
					require.Equal(t, result, rec.Value)
					on[0].keptFor(from, retain, size.keys)
				})
			})
		}
	}
}

// A lease is assigned for a while only, so every record on it is kept for the whole retention, and for
// little longer.
func TestLeasesAreHandedOutForAWhile(t *testing.T) {
	const retain, every, requests = time.Hour, 10 * time.Second, 120
	bubble(t, 1, func(t *testing.T, on []*desk) {
		s := on[0].storeOf(idempotency.Options{Retain: retain, CacheBytes: -1})
		before, revision := len(on[0].server.Leases()), on[0].server.Revision()
		var recorded [requests]time.Time
		for n := range requests {
			time.Sleep(every)
			require.NoError(t, started(t, s, order(strconv.Itoa(n))).Commit(t.Context(), nil))
			recorded[n] = time.Now()
		}
		leases := len(on[0].server.Leases()) - before
		require.Less(t, leases, requests/10, "they share leases")
		require.Greater(t, leases, 5)
		require.Equal(t, revision+2*requests, on[0].server.Revision(), "a claim and an outcome each: none was moved to another lease")
		for n, when := range recorded {
			time.Sleep(time.Until(when.Add(retain)))
			ref := string(s.Ref(order(strconv.Itoa(n))))
			require.True(t, slices.ContainsFunc(on[0].records(), func(key string) bool { return strings.HasSuffix(key, ref) }), n)
		}
		time.Sleep(retain / 10)
		require.Empty(t, on[0].records())
	})
}

// etcd restarts the time of a lease whenever its leader changes: the lease is revoked when its first
// time has passed, and not before.
func TestLeasesThatLiveOn(t *testing.T) {
	retain := retentions[1]
	bubble(t, 1, func(t *testing.T, on []*desk) {
		s := on[0].storeOf(idempotency.Options{Retain: retain, CacheBytes: -1})
		require.NoError(t, started(t, s, order("1")).Commit(t.Context(), nil))
		recorded := time.Now()
		for len(on[0].records()) > 0 {
			require.Less(t, time.Since(recorded), 3*retain)
			on[0].server.SetLeader(false)
			on[0].server.SetLeader(true)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		first := retain + retain/20 + time.Second
		require.Greater(t, time.Since(recorded), first)
		require.Less(t, time.Since(recorded), first+first/10+5*time.Second)
	})
}
