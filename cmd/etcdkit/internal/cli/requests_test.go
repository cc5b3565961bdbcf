package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/forms"
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
func (f *fixture) lost(store string, key idempotency.Key, opts ...idempotency.Option) {
	f.t.Helper()
	client := f.etcd.NewClient(f.t, nil)
	dies := testkit.SessionOn(f.t, client.Client, f.prefix, &concurrency.SessionOptions{Owner: "web-9"})
	s, err := idempotency.NewStore(dies, store, &idempotency.Options{OnLost: idempotency.Refuse})
	require.NoError(f.t, err)
	a := f.begin(s, key, append(opts, idempotency.Note("order "+key.ID))...)
	lease := dies.Lease()
	require.NoError(f.t, client.Close()) // nothing more is sent: a session that loses its lease takes another one
	if _, err = f.etcd.Client().Revoke(testkit.Context(f.t), lease); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		require.NoError(f.t, err)
	}
	testkit.Closed(f.t, a.Context().Done(), "the attempt is lost")
}

// orders fills a store with a request in each state. The numbers of records and their order do not
// depend on the run: references are hashes.
func (f *fixture) orders() *idempotency.Store {
	ctx := testkit.Context(f.t)
	s := f.storeOf("web-7", "orders", nil)
	done := f.begin(s, order("1"), idempotency.Via("do"), idempotency.Note("order 1"))
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
	f.shell("requests resolve -N test orders " + ref("5") + revision("5", "4722") + " --yes --failed 'never charged'")
	f.shell("requests get -N test orders " + ref("5") + " -o json")
	f.shell("requests resolve -N test orders " + ref("5") + revision("5", "4730") + " --yes --done testdata/result.json")
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

// lostVia leaves a request that an entry has begun and whose process has died.
func (f *fixture) lostVia(s *idempotency.Store, entry string, key idempotency.Key, opts ...idempotency.Option) (ref string) {
	f.lost("orders", key, append(opts, idempotency.Via(entry))...)
	return string(s.Ref(key))
}

// The result of a request of idemhttp, idemgrpc or Do is given in the form that its entry replays; another is refused,
// with the flags that are right, and changes nothing (U1 in internal/proof/tested-failures.md).
func TestRequestsResolveByEntry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.storeOf("web-7", "orders", nil)
	ctx := testkit.Context(t)
	shown := map[int64]string{}
	revision := func(ref string) string {
		r, _, err := s.Get(ctx, idempotency.Ref(ref))
		require.NoError(t, err)
		if shown[r.Revision] == "" {
			shown[r.Revision] = strconv.Itoa(4721 + len(shown))
			f.shows(r.Revision, shown[r.Revision])
		}
		return " --revision " + shown[r.Revision] + " --yes"
	}
	resolve := func(ref, flags string) result {
		return f.shell("requests resolve -N test orders " + ref + revision(ref) + " " + flags)
	}
	value := func(key idempotency.Key) []byte {
		_, out, err := s.Begin(ctx, key, "payload")
		require.NoError(t, err)
		return out.Value
	}
	http := f.lostVia(s, "http", order("1"))
	f.shell("requests get -N test orders " + http)
	require.Equal(t, exitUsage, resolve(http, "--done testdata/result.json").code)
	require.Equal(t, exitUsage, resolve(http, "--status 201 --header 'Set-Cookie: a=b'").code)
	require.Equal(t, exitUsage, resolve(http, "--header 'Location: /orders/1' --done testdata/result.json").code)
	require.Equal(t, exitUsage, resolve(http, "--status 201 --header '' --header 'Location: /orders/1'").code) // U8
	require.Equal(t, exitUsage, resolve(http, "--status 204 --body testdata/result.json").code)
	require.Equal(t, exitUsage, resolve(http, "--status 201 --body -").code)
	r, _, err := s.Get(ctx, idempotency.Ref(http))
	require.NoError(t, err)
	require.Equal(t, idempotency.Unknown, r.State, "nothing was changed")
	require.Zero(t, resolve(http, "--status 201 --header 'Content-Type: application/json' --header 'Location: /orders/1' --body testdata/result.json").code)
	res, err := idemhttp.Decode(value(order("1")))
	require.NoError(t, err)
	require.Equal(t, 201, res.Status)
	require.Equal(t, "/orders/1", res.Header.Get("Location"))
	require.JSONEq(t, `{"charge":7}`, string(res.Body))
	require.Zero(t, resolve(http, "--status 402").code, "a correction")

	rpc := f.lostVia(s, "grpc", order("2"))
	file := filepath.Join(t.TempDir(), "receipt.bin")
	require.NoError(t, os.WriteFile(file, []byte("\n\x02r1"), 0o600))
	f.shows(file, "receipt.bin")
	require.Equal(t, exitUsage, resolve(rpc, "--status 201").code)
	require.Equal(t, exitUsage, resolve(rpc, "--message receipt.bin").code)
	require.Equal(t, exitUsage, resolve(rpc, "--message testdata/result.json --message-type shop.v1.Receipt").code)
	require.Equal(t, exitUsage, resolve(rpc, "--message - --message-type google.protobuf.StringValue").code)
	require.Equal(t, exitUsage, resolve(rpc, "--code DECLINED").code)
	require.Zero(t, resolve(rpc, "--message receipt.bin --message-type google.protobuf.StringValue").code)
	call, ok := forms.ParseCall(value(order("2")))
	require.True(t, ok)
	var packed anypb.Any
	require.NoError(t, proto.Unmarshal(call.Body, &packed))
	m, err := packed.UnmarshalNew()
	require.NoError(t, err)
	require.Equal(t, "r1", m.(*wrapperspb.StringValue).Value)
	require.Zero(t, resolve(rpc, "--code FAILED_PRECONDITION --text 'card declined'").code)

	f.resolvesRPC(s, resolve, value)

	do := f.lostVia(s, "do", order("3"))
	require.Equal(t, exitUsage, resolve(do, "--done requests.go").code)
	require.Equal(t, exitUsage, resolve(do, "--status 201").code)
	require.Zero(t, resolve(do, "--done testdata/result.json").code)
	f.golden("requests-resolve-entries")
}

// resolvesRPC resolves calls of RPC behind idemhttp (V31): their clients read messages, and no plain response.
func (f *fixture) resolvesRPC(s *idempotency.Store, resolve func(ref, flags string) result, value func(idempotency.Key) []byte) {
	t := f.t
	inJSON := f.lostVia(s, "http/connect+json", order("4"))
	require.Equal(t, exitUsage, resolve(inJSON, "--status 201 --body testdata/result.json").code)
	require.Equal(t, exitUsage, resolve(inJSON, "--message receipt.bin").code)
	require.Zero(t, resolve(inJSON, "--message testdata/result.json").code)
	res, err := idemhttp.Decode(value(order("4")))
	require.NoError(t, err)
	require.Equal(t, "application/json", res.Header.Get("Content-Type"))
	require.JSONEq(t, `{"charge":7}`, string(res.Body))

	inGRPC := f.lostVia(s, "http/grpc", order("5"), idempotency.Returns("google.protobuf.StringValue"))
	f.shell("requests get -N test orders " + inGRPC + " -o json")
	require.Equal(t, exitUsage, resolve(inGRPC, "--message receipt.bin").code)
	require.Equal(t, exitUsage, resolve(inGRPC, "--message receipt.bin --message-type google.protobuf.BytesValue").code)
	require.Zero(t, resolve(inGRPC, "--message receipt.bin --message-type google.protobuf.StringValue").code)
	res, err = idemhttp.Decode(value(order("5")))
	require.NoError(t, err)
	require.Equal(t, "\x00\x00\x00\x00\x04\n\x02r1", string(res.Body))
	require.Zero(t, resolve(inGRPC, "--code FAILED_PRECONDITION --text 'card declined'").code, "a correction")
}

// While the process of a lost attempt lives, the request does not run again without --force (U3).
func TestRequestsOfALiveProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.storeOf("web-7", "orders", &idempotency.Options{OnLost: idempotency.Refuse, Codec: backwards{}})
	ctx := testkit.Context(t)
	for _, id := range []string{"1", "2"} {
		a := f.begin(s, order(id), idempotency.Note("order "+id))
		_, err := idempotency.Step(a, "reserve the goods", func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		require.NoError(t, a.Abandon(ctx))
		r, _, err := s.Get(ctx, s.Ref(order(id)))
		require.NoError(t, err)
		f.shows(r.Revision, "472"+id)
	}
	one, two := string(s.Ref(order("1"))), string(s.Ref(order("2")))
	f.shell("requests get -N test orders " + one)
	f.shell("requests get -N test orders " + one + " -o json")
	require.Equal(t, exitFailed, f.shell("requests resolve -N test orders "+one+" --revision 4721 --yes --not-done").code)
	require.Equal(t, exitFailed, f.shell("requests delete -N test orders "+two+" --revision 4722 --yes").code)
	require.Zero(t, f.shell("requests resolve -N test orders "+one+" --revision 4721 --yes --not-done --force -o json").code)
	require.Zero(t, f.shell("requests delete -N test orders "+two+" --revision 4722 --yes --force").code)
	f.golden("requests-alive")
}

// Many requests of unknown outcome are resolved together: those that the flags select, as they were listed, and what
// changes meanwhile or may still be at work stays (U5).
func TestRequestsResolveMany(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.storeOf("web-7", "orders", &idempotency.Options{OnLost: idempotency.Refuse})
	ctx := testkit.Context(t)
	f.lost("orders", order("1"))
	f.lost("orders", idempotency.Key{Scope: "tenant-8", Op: "POST /orders", ID: "2"})
	f.lost("orders", idempotency.Key{Scope: "tenant-7", Op: "POST /refunds", ID: "3"})
	require.NoError(t, f.begin(s, order("4")).Abandon(ctx))
	all := "requests resolve -N test orders --state unknown"
	for _, wrong := range []string{
		"requests resolve -N test orders --not-done", all + " --done testdata/result.json", all + " --not-done --revision 4711",
		"requests resolve -N test orders --state done --not-done", all + " --scope tenant-7 --not-done", all + " --op '' --failed x --yes", all + " --scope '' --failed x --yes", "requests resolve -N test orders " + string(s.Ref(order("1"))) + " --scope tenant-7 --not-done",
	} {
		require.Equal(t, exitUsage, f.run(words(t, wrong)...).code, wrong)
	}
	require.Equal(t, exitFailed, f.run(words(t, all+" --older-than 1h --not-done --yes")...).code)
	states := func() map[idempotency.State]int {
		n := map[idempotency.State]int{}
		for r, err := range s.List(ctx, idempotency.Filter{}) {
			require.NoError(t, err)
			n[r.State]++
		}
		return n
	}
	require.Equal(t, map[idempotency.State]int{idempotency.Unknown: 4}, states(), "nothing was changed")

	r := f.run(words(t, all+" --scope tenant-7 --op 'POST /orders' --not-done --yes -o json")...)
	require.Equal(t, exitFailed, r.code, "one of them may still be at work")
	require.JSONEq(t, fmt.Sprintf(`{"schema":"etcdkit.requests-resolved/v1","selected":[{"state":"unknown","policy":"refuse","process_alive":true,"requests":1,"effect":"none: the process lives"},{"state":"unknown","policy":"refuse","process_alive":false,"requests":1,"effect":"the next duplicate does the work; it would be refused"}],"left_refs":[],"resolved_refs":[%q],"refused":[{"ref":%q,"error":"request %s of store orders is unknown, attempt 1 by web-7, revision %d: process of the attempt lives, so the attempt may still be working; nothing was changed"}]}`,
		s.Ref(order("1")), s.Ref(order("4")), s.Ref(order("4")), f.revisionOf(s, order("4"))), r.out)
	require.Equal(t, map[idempotency.State]int{idempotency.Unknown: 3, idempotency.Released: 1}, states())
	f.shows(f.revisionOf(s, order("4")), "4721")
	f.shell(all + " --scope tenant-8 --failed 'never charged: bad input'")
	f.shell(all + " --scope tenant-8 --failed 'never charged: bad input' --yes")
	f.shell(all + " --op 'POST /orders' --failed 'never charged' --yes")
	f.shell(all + " --op 'POST /orders' --not-done --yes -o json")
	f.shell(all + " --op 'POST /orders' --not-done --yes --force")
	require.Equal(t, map[idempotency.State]int{idempotency.Unknown: 1, idempotency.Released: 2, idempotency.Failed: 1}, states())
	f.golden("requests-resolve-many")
}

func (f *fixture) revisionOf(s *idempotency.Store, key idempotency.Key) int64 {
	r, _, err := s.Get(testkit.Context(f.t), s.Ref(key))
	require.NoError(f.t, err)
	return r.Revision
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

	require.NoError(t, f.begin(s, order("2")).Abandon(testkit.Context(t)))
	r = f.run("requests", "resolve", "-N", "test", "orders", string(s.Ref(order("2"))), "--yes", "--revision", fmt.Sprint(f.revisionOf(s, order("2"))), "--done", "testdata/result.json")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, `Codec "backwards"`)
}
