package idempotency_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// A new request costs two Raft entries, and a replay or a rejected duplicate none: no
// Txn, and no read at all if it was read a moment ago. Leases are granted for many.
func TestRaftEntries(t *testing.T) {
	t.Parallel()
	f := own(t)
	opts := &idempotency.Options{CacheFor: time.Hour}
	a, b := f.instance(nil, opts), f.instance(nil, opts)
	for _, in := range []instance{a, b} { // the leases
		at := begin(t, in, key("warm "+in.sess.Owner()))
		require.NoError(t, at.Commit(ctxT(t), nil))
	}
	entries := func(fn func()) int {
		before := f.RaftIndex()
		fn()
		return int(f.RaftIndex() - before)
	}
	const many = 40 // a lease is granted in advance when one is half full
	require.Equal(t, 2*many, entries(func() {
		for n := range many {
			require.NoError(t, begin(t, a, key(fmt.Sprint(n))).Commit(ctxT(t), []byte("x")))
		}
	}))
	a.client.ResetRequests()
	b.client.ResetRequests()
	require.Zero(t, entries(func() {
		for range 3 {
			for n := range many {
				replayed(t, a, key(fmt.Sprint(n)))
				replayed(t, b, key(fmt.Sprint(n)))
			}
		}
	}))
	require.Zero(t, a.client.Requests()["Range"], "in the cache")
	require.Contains(t, []int{many, many + 1}, b.client.Requests()["Range"], "read once; and on a busy machine the session lists its keys")
	require.Zero(t, b.client.Requests()["Txn"])

	a.client.ResetRequests()
	require.Equal(t, 2, entries(func() {
		require.NoError(t, begin(t, a, key("likely"), idempotency.LikelyNew()).Commit(ctxT(t), []byte("x")))
	}))
	require.Zero(t, a.client.Requests()["Range"], "LikelyNew does not look first")
	require.Equal(t, 1, entries(func() {
		_, rec, err := b.Begin(ctxT(t), key("likely"), "payload", idempotency.LikelyNew())
		require.NoError(t, err)
		require.Equal(t, "x", string(rec.Value))
	}), "and costs an entry where it was wrong")

	at := begin(t, a, key("busy"))
	require.Zero(t, entries(func() { rejected(t, b, key("busy")) }))
	require.Zero(t, entries(func() {
		_, _, err := b.Begin(ctxT(t), key("busy"), "another", idempotency.Wait(0))
		require.ErrorIs(t, err, idempotency.ErrMismatch)
	}))
	require.Equal(t, 1, entries(func() { require.NoError(t, at.Release(ctxT(t))) }))
}

// I10, I11, I32, I42: the fingerprint is compared in every state, before all else, and after
// the outcome as before; a mismatch leaves nothing behind. Another key with the same
// payload is another request.
func TestMismatch(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b, c := f.instance(nil, nil), f.instance(nil, nil), f.instance(nil, nil)
	mismatch := func(in instance, finished bool) {
		t.Helper()
		var m *idempotency.MismatchError
		_, _, err := in.Begin(ctxT(t), key("1"), "another") // it would wait otherwise
		require.ErrorIs(t, err, idempotency.ErrMismatch)
		require.ErrorAs(t, err, &m)
		require.Equal(t, finished, m.Finished)
	}
	at := begin(t, a, key("1"))
	mismatch(a, false)
	mismatch(b, false)
	require.NoError(t, at.Commit(ctxT(t), []byte("x")))
	mismatch(a, true)
	mismatch(b, true)
	require.Zero(t, idempotency.Cached(b.Store), "I11: a mismatch fills no cache")
	for _, in := range []instance{a, b, c} {
		require.Equal(t, "x", string(replayed(t, in, key("1")).Value), "I10")
	}
	mismatch(c, true)
	require.Zero(t, idempotency.Flights(b.Store))
	require.NoError(t, begin(t, b, key("2")).Release(ctxT(t)), "I42")

	// A lost one too.
	require.NoError(t, begin(t, a, key("3")).Abandon(ctxT(t)))
	_, _, err := b.Begin(ctxT(t), key("3"), "another")
	require.ErrorIs(t, err, idempotency.ErrMismatch)
}

// I12: only outcomes are kept in the cache.
func TestCacheHasOutcomesOnly(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	rejected(t, b, key("1"))
	rejected(t, a, key("1"))
	require.Zero(t, idempotency.Cached(a.Store))
	require.Zero(t, idempotency.Cached(b.Store))
	require.NoError(t, at.Release(ctxT(t)))
	require.Zero(t, idempotency.Cached(a.Store))
	at = begin(t, b, key("1"))
	require.NoError(t, at.Commit(ctxT(t), []byte("x")))
	require.Equal(t, "x", string(replayed(t, a, key("1")).Value))
}

// The cache is bounded, and forgets after a while what was deleted by others.
func TestCacheBounds(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, &idempotency.Options{CacheBytes: 10_000, CacheFor: 50 * time.Millisecond})
	b := f.instance(nil, &idempotency.Options{CacheBytes: -1})
	for n := range 30 {
		require.NoError(t, begin(t, a, key(fmt.Sprint(n))).Commit(ctxT(t), make([]byte, 1000)))
	}
	require.LessOrEqual(t, idempotency.Cached(a.Store), 8)
	require.NoError(t, begin(t, a, key("big")).Commit(ctxT(t), make([]byte, 5000)))
	replayed(t, b, key("29"))
	require.Zero(t, idempotency.Cached(b.Store))
	require.NoError(t, b.Delete(ctxT(t), b.Ref(key("29"))))
	require.Eventually(t, func() bool {
		at, _, err := a.Begin(ctxT(t), key("29"), "payload")
		return err == nil && at != nil && at.Release(ctxT(t)) == nil
	}, soon, 10*time.Millisecond)
}

// I13, I14, I34: payloads are compared by content: JSON without regard to order and space, all
// else byte by byte, whatever its size.
func TestFingerprints(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	big := bytes.Repeat([]byte("x"), 1<<20)
	other := bytes.Clone(big)
	other[len(other)-1] = 'y'
	type pay struct {
		To    string         `json:"to"`
		Cents int            `json:"cents"`
		More  map[string]int `json:"more,omitempty"`
	}
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for i, tt := range []struct {
		first, second any
		same          bool
	}{
		{nil, nil, true},
		{nil, []byte{}, true},
		{nil, "x", false},
		{big, big, true},
		{big, string(big), true},
		{big, other, false},
		{raw(`{"a":1,"b":[1,2,{"c":null}]}`), raw(" {\"b\": [1, 2, {\"c\":null}],\n\"a\":1}"), true},
		{raw(`{"a":1}`), raw(`{"a":2}`), false},
		{raw(`[1,2]`), raw(`[2,1]`), false},
		{raw(`{"a":12345678901234567890}`), raw(`{"a":12345678901234567891}`), false},
		{pay{"x", 1, map[string]int{"a": 1, "b": 2}}, raw(`{"cents":1,"more":{"b":2,"a":1},"to":"x"}`), true},
		{pay{To: "x", Cents: 1}, pay{To: "x", Cents: 2}, false},
		{idempotency.Fingerprint{1}, idempotency.Fingerprint{1}, true},
		{idempotency.Fingerprint{1}, idempotency.Fingerprint{2}, false},
		{"1", raw("1"), false}, // text is no JSON
	} {
		k := key(fmt.Sprint(i))
		at, _, err := a.Begin(ctxT(t), k, tt.first)
		require.NoError(t, err)
		require.NoError(t, at.Commit(ctxT(t), nil))
		_, _, err = a.Begin(ctxT(t), k, tt.second)
		if tt.same {
			require.NoError(t, err, i)
		} else {
			require.ErrorIs(t, err, idempotency.ErrMismatch, i)
		}
	}
	for _, bad := range []any{raw("{"), raw("1 2"), func() {}} {
		_, _, err := a.Begin(ctxT(t), key("bad"), bad)
		require.ErrorIs(t, err, idempotency.ErrInvalid)
	}
	// Another secret, another fingerprint: reported, and nothing is done twice.
	b := f.instance(nil, &idempotency.Options{Secret: []byte("s")})
	_, _, err := b.Begin(ctxT(t), key("0"), nil)
	require.ErrorIs(t, err, idempotency.ErrMismatch)
}

// I30, I31: one ID in two scopes, operations or stores means two requests, and one caller
// learns nothing of the other's. I35: two stores on one session have their own options.
func TestScopes(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	strict, err := idempotency.NewStore(a.sess, "other", &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(t, err)
	keys := []idempotency.Key{
		{Scope: "a", Op: "pay", ID: "1"}, {Scope: "b", Op: "pay", ID: "1"}, {Scope: "a", Op: "refund", ID: "1"},
		{Scope: "ap", Op: "ay", ID: "1"}, {Scope: "a", Op: "pay1", ID: "1"}, {Scope: "a", Op: "pa", ID: "y1"}, {Scope: "a", Op: "pay/1", ID: "1"},
	}
	var all []*idempotency.Attempt
	for i, k := range keys {
		for _, st := range []*idempotency.Store{a.Store, strict} {
			at, rec, err := st.Begin(ctxT(t), k, fmt.Sprint("payload ", i))
			require.NoError(t, err)
			require.Nil(t, rec)
			all = append(all, at)
		}
	}
	require.Len(t, f.working(), len(all))
	for name := range f.Values("/idempotency/") {
		require.NotContains(t, name, "refund")
	}
	_, _, err = strict.Begin(ctxT(t), keys[0], "payload 0", idempotency.Wait(0))
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	for _, at := range all {
		require.NoError(t, at.Abandon(ctxT(t)))
	}
	_, _, err = strict.Begin(ctxT(t), keys[0], "payload 0")
	require.ErrorIs(t, err, idempotency.ErrUnknown, "its own policy")
	at, _, err := a.Begin(ctxT(t), keys[0], "payload 0")
	require.NoError(t, err)
	require.Equal(t, 2, at.Attempt())
	children := map[string]bool{}
	for _, at := range all {
		children[at.ChildKey("charge")] = true
	}
	require.Len(t, children, len(all))
}

// S11: a member that lags behind shows a record of before the key was deleted and used
// again. It is not replayed.
func TestTrapS11StaleReplay(t *testing.T) {
	t.Parallel()
	f := fixture{testkit.Own(t, 3)}
	c := f.Cluster
	lagging := (c.Leader() + 1) % 3
	at := c.NewClient(t, &embedtest.ClientOptions{Endpoints: c.Endpoints()[lagging : lagging+1]})
	sess, err := concurrency.NewSession(ctxT(t), at.Client, "test", &concurrency.SessionOptions{Prefix: f.Root})
	require.NoError(t, err)
	defer func() { _ = sess.Close(ctxT(t)) }()
	st, err := idempotency.NewStore(sess, "store", &idempotency.Options{CacheBytes: -1})
	require.NoError(t, err)
	b := f.instance(nil, nil)
	require.NoError(t, begin(t, b, key("1")).Commit(ctxT(t), []byte("first")))
	_, rec, err := st.Begin(ctxT(t), key("1"), "payload")
	require.NoError(t, err)
	require.Equal(t, "first", string(rec.Value))

	// The member is cut off from the others, and the client's reads go to it.
	require.NoError(t, c.CutPeers(lagging))
	pinned := f.NewClient(t, &embedtest.ClientOptions{Endpoints: []string{c.Endpoints()[(lagging+1)%3]}})
	s2, err := concurrency.NewSession(ctxT(t), pinned.Client, "test", &concurrency.SessionOptions{Prefix: f.Root})
	require.NoError(t, err)
	defer func() { _ = s2.Close(ctxT(t)) }()
	other, err := idempotency.NewStore(s2, "store", nil)
	require.NoError(t, err)
	require.NoError(t, other.Delete(ctxT(t), other.Ref(key("1"))))
	next, _, err := other.Begin(ctxT(t), key("1"), "payload")
	require.NoError(t, err)
	require.NoError(t, next.Commit(ctxT(t), []byte("second")))

	// It has learned of a later revision, so it asks a majority, which cannot be
	// reached from there; and it never shows the first generation.
	idempotency.Saw(st, next.Token())
	short, cancel := context.WithTimeout(ctxT(t), 300*time.Millisecond)
	defer cancel()
	_, rec, err = st.Begin(short, key("1"), "payload")
	require.Error(t, err)
	require.Nil(t, rec)
	require.NoError(t, c.HealPeers(lagging))
	_, rec, err = st.Begin(ctxT(t), key("1"), "payload")
	require.NoError(t, err)
	require.Equal(t, "second", string(rec.Value))
}

// If a record cannot be read, whatever it contains, the function does not run.
func TestHostileRecords(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, &idempotency.Options{CacheBytes: -1})
	require.NoError(t, begin(t, a, key("1")).Commit(ctxT(t), []byte("x")))
	var name, good string
	for name, good = range f.Values("/idempotency/") {
	}
	for _, bad := range []string{
		"", "x", "{}", "{}\n", good[:len(good)/2], good + "y", `{"v":2}` + "\n",
		string(bytes.Replace([]byte(good), []byte(`"v":1`), []byte(`"v":2`), 1)),
		string(bytes.Replace([]byte(good), []byte(`"state":"done"`), []byte(`"state":"other"`), 1)),
		string(bytes.Replace([]byte(good), []byte(`"size":1`), []byte(`"size":9999999999`), 1)),
		string(bytes.Replace([]byte(good), []byte(`"size":1`), []byte(`"size":99999,"parts":3`), 1)),
		string(bytes.Repeat([]byte{0xff}, 100_000)),
	} {
		_, err := f.Client().Put(ctxT(t), name, bad)
		require.NoError(t, err)
		short, cancel := context.WithTimeout(ctxT(t), 200*time.Millisecond)
		at, rec, err := a.Begin(short, key("1"), "payload")
		cancel()
		require.Error(t, err, bad)
		require.Nil(t, at)
		require.Nil(t, rec)
	}
	r, _, err := a.Get(ctxT(t), a.Ref(key("1")))
	require.NoError(t, err)
	require.Equal(t, idempotency.Unreadable, r.State)
	require.ErrorIs(t, a.Resolve(ctxT(t), r.Ref, idempotency.NotDone()), idempotency.ErrUnreadable)
	// Damaged in mid-attempt: nothing is recorded, and the claim is given up.
	at := begin(t, a, key("2"))
	for name := range f.Values("/idempotency/") {
		if strings.HasSuffix(name, string(a.Ref(at.Key()))) {
			_, err := f.Client().Put(ctxT(t), name, "x")
			require.NoError(t, err)
		}
	}
	require.ErrorIs(t, at.Commit(ctxT(t), nil), idempotency.ErrFenced)
	f.noneWorks()
	require.NoError(t, a.Delete(ctxT(t), a.Ref(at.Key())))
	// Foreign keys are in the way of no request.
	for _, k := range []string{"/record/x", "/record/", "/record/0123456789abcdef/short"} {
		_, err := f.Client().Put(ctxT(t), f.Root+"v1/test/idempotency/store"+k, "x")
		require.NoError(t, err)
	}
	n := 0
	for r, err := range a.List(ctxT(t), idempotency.Filter{}) {
		require.NoError(t, err)
		require.Equal(t, idempotency.Unreadable, r.State)
		n++
	}
	require.Equal(t, 1, n)
	require.NoError(t, a.Delete(ctxT(t), r.Ref))
	require.NoError(t, begin(t, a, key("1")).Commit(ctxT(t), nil))
}
