package virtual

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
)

func (d *desk) storeOf(opts idempotency.Options) *idempotency.Store {
	d.t.Helper()
	opts.NearQuota = 2 // etcdfake has no quota
	s, err := idempotency.NewStore(d.session, "store", &opts)
	require.NoError(d.t, err)
	return s
}

// order is the key of one request.
func order(id string) idempotency.Key {
	return idempotency.Key{Scope: "tenant", Op: "pay", ID: id}
}

// started begins an attempt that the test holds.
func started(t *testing.T, s *idempotency.Store, k idempotency.Key, opts ...idempotency.Option) *idempotency.Attempt {
	t.Helper()
	at, rec, err := s.Begin(t.Context(), k, "payload", opts...)
	require.NoError(t, err)
	require.Nil(t, rec)
	require.NotNil(t, at)
	return at
}

// busy asks for a request that must be in progress.
func busy(t *testing.T, s *idempotency.Store, k idempotency.Key) {
	t.Helper()
	at, _, err := s.Begin(t.Context(), k, "payload", idempotency.Wait(0))
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	require.Nil(t, at)
}

// records are the keys of records that etcd has.
func (d *desk) records() (keys []string) {
	for _, key := range d.server.Keys("") {
		if strings.Contains(key, "/record/") {
			keys = append(keys, key)
		}
	}
	return keys
}

// S5: an attempt that takes longer than its outcome is kept still has its record; retention
// counts from the outcome.
func TestTrapS5Retention(t *testing.T) {
	for _, retain := range []time.Duration{time.Second, time.Hour} {
		t.Run(retain.String(), func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				opts := idempotency.Options{Retain: retain, RetainUnknown: retain, CacheBytes: -1}
				a, b := on[0].storeOf(opts), on[1].storeOf(opts)
				at := started(t, a, order("1"), idempotency.MaxExecution(24*time.Hour))
				select {
				case <-at.Context().Done():
					require.FailNow(t, "ended")
				case <-time.After(2*retain + 2*time.Minute): // more than the TTL of its lease
				}
				busy(t, b, order("1"))
				done := time.Now()
				require.NoError(t, at.Commit(t.Context(), []byte("x")))
				for {
					next, rec, err := b.Begin(t.Context(), order("1"), "payload")
					require.NoError(t, err)
					if next != nil {
						require.Greater(t, time.Since(done), retain)
						require.Equal(t, 1, next.Attempt())
						require.NoError(t, next.Release(t.Context()))
						break
					}
					require.Equal(t, "x", string(rec.Value))
					require.Less(t, time.Since(done), 2*retain+time.Minute)
					time.Sleep(retain / 100)
				}

				// A lost one is kept as long, counted from the end of its process.
				started(t, a, order("2"), idempotency.OnLost(idempotency.Refuse))
				on[0].client.Stall() // as of a process that was killed
				killed := time.Now()
				var refused time.Time
				for ; ; time.Sleep(retain / 100) {
					next, _, err := b.Begin(t.Context(), order("2"), "payload")
					if next != nil {
						require.False(t, refused.IsZero(), "it was not known to be lost")
						require.Greater(t, time.Since(refused), retain)
						require.NoError(t, next.Release(t.Context()))
						break
					}
					require.ErrorIs(t, err, idempotency.ErrUnknown)
					if refused.IsZero() {
						refused = time.Now()
					}
					require.Less(t, time.Since(killed), 2*retain+time.Minute)
				}
			})
		})
	}
}

// I37, I09: an attempt lives as long as its session, however long it takes, and is lost with
// it: its context ends, and duplicates take over.
func TestAttemptLivesWithItsSession(t *testing.T) {
	bubble(t, 2, func(t *testing.T, on []*desk) {
		a, b := on[0].store(), on[1].store()
		at := started(t, a, order("1"), idempotency.MaxExecution(24*time.Hour))
		type taking struct {
			at   *idempotency.Attempt
			when time.Time
		}
		taken := make(chan taking, 1)
		go func() {
			next, _, err := b.Begin(within(t, 3*time.Hour), order("1"), "payload")
			if err != nil {
				t.Error(err)
			}
			taken <- taking{next, time.Now()}
		}()
		select {
		case <-taken:
			require.FailNow(t, "taken from one that lives")
		case <-time.After(2*time.Hour + renews/2):
		}
		require.NoError(t, at.Err())
		renewed := on[0].begun.Add(2 * time.Hour)
		on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			return etcdfake.Fault{DropRequest: m.Method == "LeaseKeepAlive" && !m.Response}
		})
		<-at.Context().Done()
		require.Equal(t, renewed.Add(ttl-margin), time.Now())
		require.ErrorIs(t, context.Cause(at.Context()), idempotency.ErrLost)
		require.ErrorIs(t, at.Err(), concurrency.ErrLost)
		next := <-taken
		require.Equal(t, renewed.Add(ttl), next.when)
		on[0].client.Inject(nil)
		require.Equal(t, 2, next.at.Attempt())
		require.Greater(t, next.at.Token(), at.Token())
		require.Equal(t, at.ChildKey("charge"), next.at.ChildKey("charge"))
		require.NotEqual(t, at.ChildKey("charge"), next.at.ChildKey("mail"))
		require.NoError(t, next.at.Commit(t.Context(), []byte("b")))
	})
}

// RetainUnknown shorter than the session's TTL: a process that is away for longer than that, and has
// not lost its session, still has the record of its attempt.
func TestShortRetainUnknown(t *testing.T) {
	bubble(t, 2, func(t *testing.T, on []*desk) {
		opts := idempotency.Options{Retain: time.Second, RetainUnknown: time.Second}
		a, b := on[0].storeOf(opts), on[1].storeOf(opts)
		at := started(t, a, order("1"), idempotency.MaxExecution(24*time.Hour))
		on[0].client.Stall()
		for away := time.Now(); time.Since(away) < ttl-margin-time.Second; time.Sleep(10 * time.Millisecond) {
			require.Len(t, on[0].records(), 1, time.Since(away))
		}
		on[0].client.Heal()
		synctest.Wait()
		require.NoError(t, at.Err())
		busy(t, b, order("1"))
		require.NoError(t, at.Commit(t.Context(), []byte("x")))
	})
}

// I12: a process that has recorded an outcome does not replay it from its cache after it has expired and
// the request has another one, whether the store or the call says for how long it is retained.
func TestCacheEndsWithRetention(t *testing.T) {
	const kept = 30 * time.Minute
	bubble(t, 4, func(t *testing.T, on []*desk) {
		opts := func(retain time.Duration) idempotency.Options {
			return idempotency.Options{Retain: retain, CacheFor: 3 * kept}
		}
		byStore, byCall := on[0].storeOf(opts(kept)), on[1].storeOf(opts(0))
		reader, next := on[2].storeOf(opts(kept)), on[3].storeOf(idempotency.Options{CacheBytes: -1})
		keys := []idempotency.Key{order("1"), order("2")}
		replayed := func(want string) {
			t.Helper()
			for _, s := range []*idempotency.Store{byStore, byCall, reader} {
				for _, k := range keys {
					require.Equal(t, want, replay(t, s, k, idempotency.Retain(kept)))
				}
			}
		}
		recorded := time.Now()
		require.NoError(t, started(t, byStore, keys[0]).Commit(t.Context(), []byte("first")))
		require.NoError(t, started(t, byCall, keys[1], idempotency.Retain(kept)).Commit(t.Context(), []byte("first")))
		replayed("first")
		on[0].expired(recorded, kept)
		for _, k := range keys {
			require.NoError(t, started(t, next, k).Commit(t.Context(), []byte("second")))
		}
		synctest.Wait()
		replayed("second")
	})
}

// I12: a process that has read an outcome does not know its age. It may replay it for CacheFor from the
// read, or for the Retain of its store or its call if that is shorter, and not for longer, although the
// outcome has expired and the request has another one.
func TestCacheOfALateReader(t *testing.T) {
	const kept = 30 * time.Minute
	for name, c := range map[string]struct {
		opts idempotency.Options
		call time.Duration
		most time.Duration
	}{
		"CacheFor by default": {idempotency.Options{Retain: kept}, kept, 10 * time.Second},
		"CacheFor":            {idempotency.Options{Retain: kept, CacheFor: 20 * time.Minute}, kept, 20 * time.Minute},
		"Retain of the store": {idempotency.Options{Retain: 15 * time.Minute, CacheFor: 3 * kept}, kept, 15 * time.Minute},
		"Retain of the call":  {idempotency.Options{Retain: 2 * kept, CacheFor: 3 * kept}, 25 * time.Minute, 25 * time.Minute},
		"no cache":            {idempotency.Options{Retain: kept, CacheBytes: -1}, kept, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				reader, next := on[0].storeOf(c.opts), on[1].storeOf(idempotency.Options{Retain: kept, CacheBytes: -1})
				recorded := time.Now()
				require.NoError(t, started(t, next, order("1")).Commit(t.Context(), []byte("first")))
				time.Sleep(kept)
				require.Equal(t, "first", replay(t, reader, order("1"), idempotency.Retain(c.call)))
				read := time.Now()
				on[1].expired(recorded, kept)
				require.NoError(t, started(t, next, order("1")).Commit(t.Context(), []byte("second")))
				replayed := max(c.most, time.Since(read))
				for replay(t, reader, order("1"), idempotency.Retain(c.call)) == "first" {
					require.Less(t, time.Since(read), replayed)
					time.Sleep(time.Second)
				}
				require.InDelta(t, replayed.Seconds(), time.Since(read).Seconds(), 1)
			})
		})
	}
}

// replay returns an outcome that must be there.
func replay(t *testing.T, s *idempotency.Store, k idempotency.Key, opts ...idempotency.Option) string {
	t.Helper()
	_, rec, err := s.Begin(t.Context(), k, "payload", append(opts, idempotency.Wait(0))...)
	require.NoError(t, err)
	require.NotNil(t, rec)
	return string(rec.Value)
}

// expired waits until the outcomes have expired that were recorded at a time, to be retained for so long.
func (d *desk) expired(recorded time.Time, retain time.Duration) {
	d.t.Helper()
	for ; len(d.records()) > 0; time.Sleep(time.Second) {
		require.Less(d.t, time.Since(recorded), 2*retain)
	}
}
