package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// storeOf is a store of a process.
func (f *fixture) storeOf(owner, name string, opts *idempotency.Options) *idempotency.Store {
	f.t.Helper()
	s, err := idempotency.NewStore(f.session(owner), name, opts)
	require.NoError(f.t, err)
	return s
}

func (f *fixture) begin(s *idempotency.Store, key idempotency.Key, opts ...idempotency.Option) *idempotency.Attempt {
	f.t.Helper()
	a, _, err := s.Begin(testkit.Context(f.t), key, "payload", opts...)
	require.NoError(f.t, err)
	require.NotNil(f.t, a)
	return a
}

func order(id string) idempotency.Key {
	return idempotency.Key{Scope: "tenant-7", Op: "POST /orders", ID: id}
}

// lost leaves a request whose process has died.
func (f *fixture) lost(store string, key idempotency.Key) {
	f.t.Helper()
	dies := f.session("web-9")
	s, err := idempotency.NewStore(dies, store, &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(f.t, err)
	a := f.begin(s, key)
	_, err = f.etcd.Client().Revoke(testkit.Context(f.t), dies.Lease())
	require.NoError(f.t, err)
	testkit.Closed(f.t, a.Context().Done(), "the attempt is lost")
}

// orders fills a store with a request in each state. The numbers of records and their order do not
// depend on the run: references are hashes.
func (f *fixture) orders() *idempotency.Store {
	ctx := testkit.Context(f.t)
	s := f.storeOf("web-7", "orders", nil)
	done := f.begin(s, order("1"))
	require.NoError(f.t, done.Commit(ctx, []byte(`{"charge":7}`)))
	f.shows(done.Token(), "4711")
	failed := f.begin(s, order("2"))
	require.NoError(f.t, failed.Fail(ctx, "card declined", nil))
	f.shows(failed.Token(), "4712")
	f.begin(s, order("4"))
	f.lost("orders", order("5"))
	return s
}

func TestRequests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.shell("requests -N test")
	s := f.orders()
	ref := func(id string) string { return string(s.Ref(order(id))) }
	f.shell("requests -N test")
	f.shell("requests -N test -o json")
	f.shell("requests")
	f.shell("requests list -N test orders")
	f.shell("requests list -N test orders --state unknown -o json")
	f.shell("requests list -N test orders --limit 2")
	f.shell("requests list -N test orders --scope tenant-8")
	f.shell("requests list -N test orders --op 'POST /orders' --state done")
	f.shell("requests list -N test orders --state lost")
	f.shell("requests stats -N test orders")
	f.shell("requests stats -N test orders -o json")
	f.shell("requests get -N test orders " + ref("1"))
	f.shell("requests get -N test orders " + ref("1") + " --show-result")
	f.shell("requests get -N test orders " + ref("1") + " --show-result -o json")
	f.shell("requests get -N test orders " + ref("2") + " -o json")
	binary := f.begin(s, order("8"))
	require.NoError(t, binary.Commit(testkit.Context(t), []byte{0xff, 0}))
	f.shows(binary.Token(), "4713")
	f.shell("requests get -N test orders " + ref("8") + " --show-result -o json")
	f.shell("requests get -N test orders " + ref("6"))
	f.shell("requests get -N test orders K-1")
	f.shell("requests list -N test ordres")
	f.golden("requests")
}

func TestRequestsResolve(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.orders()
	ctx := testkit.Context(t)
	ref := func(id string) string { return string(s.Ref(order(id))) }
	resolved := func(id string) {
		r, _, err := s.Get(ctx, s.Ref(order(id)))
		require.NoError(t, err)
		f.shows(r.Resolved, "etcdkit requests resolve by ada@ci-3, process 4242")
	}
	revision := func(id, as string) string { // the flag
		r, _, err := s.Get(ctx, s.Ref(order(id)))
		require.NoError(t, err)
		f.shows(r.Revision, as)
		return " --revision " + as
	}
	r := f.shell("requests get -N test orders " + ref("5"))
	require.Contains(t, r.out, "unknown")
	f.shell("requests resolve -N test orders " + ref("5"))
	f.shell("requests resolve -N test orders " + ref("5") + " --not-done")
	f.shell("requests resolve -N test orders " + ref("5") + " --not-done --failed 'card declined'")
	f.shell("requests resolve -N test orders " + ref("5") + " --yes --done no-such-file")
	f.shows("4729", "4729") // of an earlier attempt
	f.shell("requests resolve -N test orders " + ref("5") + " --yes --not-done --revision 4729")
	examined := revision("5", "4721")
	f.shell("requests resolve -N test orders " + ref("5") + examined + " --yes --done testdata/result.json -o json")
	resolved("5")
	f.shell("requests resolve -N test orders " + ref("5") + examined + " --yes --not-done")
	f.shell("requests resolve -N test orders " + ref("5") + revision("5", "4722") + " --yes --not-done")
	f.shell("requests resolve -N test orders " + ref("4") + revision("4", "4723") + " --yes --not-done")
	f.lost("orders", order("7"))
	f.shell("requests resolve -N test orders " + ref("7") + revision("7", "4724") + " --yes --failed 'card declined'")
	resolved("7")
	f.lost("orders", order("8"))
	f.shell("requests resolve -N test orders " + ref("8") + revision("8", "4725") + " --yes --not-done")
	resolved("8")
	_, out, err := s.Begin(ctx, order("5"), "payload")
	require.NoError(t, err)
	require.Equal(t, `{"charge":7}`, strings.TrimSpace(string(out.Value)), "a duplicate gets what was resolved")
	_, out, err = s.Begin(ctx, order("7"), "payload")
	require.NoError(t, err)
	require.Equal(t, "card declined", out.Failure)
	examined = revision("8", "4726")
	require.Equal(t, 2, f.begin(s, order("8")).Attempt(), "a duplicate does the work")
	f.shell("requests delete -N test orders " + ref("8") + examined + " --yes")
	f.shell("requests delete -N test orders " + ref("1"))
	f.shell("requests delete -N test orders " + ref("1") + " --yes")
	f.shell("requests delete -N test orders " + ref("1") + revision("1", "4727") + " --yes -o json")
	f.shell("requests delete -N test orders " + ref("1") + " --yes")
	f.shell("requests delete -N test orders " + ref("4") + revision("4", "4728") + " --yes")
	f.begin(f.storeOf("web-8", "orders", nil), order("1")) // a process that has not cached the outcome
	f.golden("requests-resolve")
}

// backwards is a codec.
type backwards struct{}

func (backwards) Name() string { return "backwards" }
func (backwards) Encode(b, _ []byte) ([]byte, error) {
	b = bytes.Clone(b)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return b, nil
}
func (c backwards) Decode(b, about []byte) ([]byte, error) { return c.Encode(b, about) }

// What the services have encoded is neither shown nor shown as if it were the result.
func TestRequestsEncoded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.storeOf("web-7", "orders", &idempotency.Options{Codec: backwards{}})
	require.NoError(t, f.begin(s, order("1")).Commit(testkit.Context(t), []byte("secret")))
	ref := string(s.Ref(order("1")))
	r := f.run("requests", "get", "-N", "test", "orders", ref)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "6 bytes")
	r = f.run("requests", "get", "-N", "test", "orders", ref, "--show-result")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, `it was written by codec "backwards"`)
	require.NotContains(t, r.out+r.err, "terces")
}
