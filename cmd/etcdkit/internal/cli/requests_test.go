package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/forms"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

func TestRequests(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Shell("requests -N test")
	s := f.Orders()
	ref := func(id string) string { return string(s.Ref(clitest.Order(id))) }
	f.Shell("requests -N test")
	f.Shell("requests -N test -o json")
	f.Shell("requests")
	f.Shell("requests list -N test orders")
	f.Shell("requests list -N test orders --state unknown -o json")
	f.Shell("requests list -N test orders --limit 2")
	f.Shell("requests list -N test orders --scope tenant-8")
	f.Shell("requests list -N test orders --op 'POST /orders' --state done")
	f.Shell("requests list -N test orders --state lost")
	f.Shell("requests stats -N test orders")
	f.Shell("requests stats -N test orders -o json")
	f.Shell("requests get -N test orders " + ref("1"))
	f.Shell("requests get -N test orders " + ref("1") + " --show-result")
	f.Shell("requests get -N test orders " + ref("1") + " --show-result -o json")
	f.Shell("requests get -N test orders " + ref("2") + " -o json")
	binary := f.Begin(s, clitest.Order("8"))
	require.NoError(t, binary.Commit(testkit.Context(t), []byte{0xff, 0}))
	f.Shows(binary.Token(), "4713")
	f.Shell("requests get -N test orders " + ref("8") + " --show-result -o json")
	f.Shell("requests get -N test orders " + ref("6"))
	f.Shell("requests get -N test orders K-1")
	f.Shell("requests list -N test ordres")
	f.Golden("requests")
}

// A423: the records of a large store are not read for two columns, unless that is asked for.
func TestRequestsOfALargeStore(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	f.Orders()
	space, err := keyspace.New(f.Prefix, "test")
	require.NoError(t, err)
	resp, err := f.Etcd.Client().Get(testkit.Context(t), space.Store("orders").Records(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1))
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1)
	like := string(resp.Kvs[0].Key)
	for i := 0; i < 5000; i += 100 {
		var puts []clientv3.Op
		for n := range 100 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s%04d%s", like[:len(like)-8], i+n, like[len(like)-4:]), "what?"))
		}
		_, err := f.Etcd.Client().Txn(testkit.Context(t)).Then(puts...).Commit()
		require.NoError(t, err)
	}
	shown := f.Shell("requests -N test")
	require.Regexp(t, `orders +5004 +- +-\n`, shown.Out)
	require.Equal(t, 1, strings.Count(shown.Err, "--all"), shown.Err)
	shown = f.Shell("requests -N test -o json")
	require.JSONEq(t, `{"schema":"etcdkit.stores/v1","stores":[{"name":"orders","keys":5004,"unknown":null,"unreadable":null}]}`, shown.Out)
	shown = f.Shell("requests -N test --all")
	require.Regexp(t, `orders +5004 +1 +5000\n`, shown.Out)
	require.Empty(t, shown.Err)
}

func TestRequestsResolve(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.Orders()
	ctx := testkit.Context(t)
	ref := func(id string) string { return string(s.Ref(clitest.Order(id))) }
	resolved := func(id string) {
		r, _, err := s.Get(ctx, s.Ref(clitest.Order(id)))
		require.NoError(t, err)
		f.Shows(r.Resolved, "etcdkit requests resolve by ada@ci-3, process 4242")
	}
	revision := func(id, as string) string { // the flag
		r, _, err := s.Get(ctx, s.Ref(clitest.Order(id)))
		require.NoError(t, err)
		f.Shows(r.Revision, as)
		return " --revision " + as
	}
	r := f.Shell("requests get -N test orders " + ref("5"))
	require.Contains(t, r.Out, "unknown")
	f.Shell("requests resolve -N test orders " + ref("5"))
	f.Shell("requests resolve -N test orders " + ref("5") + " --not-done")
	f.Shell("requests resolve -N test orders " + ref("5") + " --not-done --failed 'card declined'")
	f.Shell("requests resolve -N test orders " + ref("5") + " --yes --done no-such-file")
	f.Shows("4729", "4729") // of an earlier attempt
	f.Shell("requests resolve -N test orders " + ref("5") + " --yes --not-done --revision 4729")
	examined := revision("5", "4721")
	f.Shell("requests resolve -N test orders " + ref("5") + examined + " --yes --done testdata/result.json -o json")
	resolved("5")
	f.Shell("requests resolve -N test orders " + ref("5") + examined + " --yes --not-done")
	f.Shell("requests resolve -N test orders " + ref("5") + revision("5", "4722") + " --yes --not-done")
	f.Shell("requests resolve -N test orders " + ref("5") + revision("5", "4722") + " --yes --failed 'never charged'")
	f.Shell("requests get -N test orders " + ref("5") + " -o json")
	f.Shell("requests resolve -N test orders " + ref("5") + revision("5", "4730") + " --yes --done testdata/result.json")
	f.Shell("requests resolve -N test orders " + ref("4") + revision("4", "4723") + " --yes --not-done")
	f.Lost("orders", clitest.Order("7"))
	f.Shell("requests resolve -N test orders " + ref("7") + revision("7", "4724") + " --yes --failed 'card declined'")
	resolved("7")
	f.Lost("orders", clitest.Order("8"))
	f.Shell("requests resolve -N test orders " + ref("8") + revision("8", "4725") + " --yes --not-done")
	resolved("8")
	_, out, err := s.Begin(ctx, clitest.Order("5"), "payload")
	require.NoError(t, err)
	require.Equal(t, `{"charge":7}`, strings.TrimSpace(string(out.Value)), "a duplicate gets what was resolved")
	_, out, err = s.Begin(ctx, clitest.Order("7"), "payload")
	require.NoError(t, err)
	require.Equal(t, "card declined", out.Failure)
	examined = revision("8", "4726")
	require.Equal(t, 2, f.Begin(s, clitest.Order("8")).Attempt(), "a duplicate does the work")
	f.Shell("requests delete -N test orders " + ref("8") + examined + " --yes")
	f.Shell("requests delete -N test orders " + ref("1"))
	f.Shell("requests delete -N test orders " + ref("1") + " --yes")
	f.Shell("requests delete -N test orders " + ref("1") + revision("1", "4727") + " --yes -o json")
	f.Shell("requests delete -N test orders " + ref("1") + " --yes")
	f.Shell("requests delete -N test orders " + ref("4") + revision("4", "4728") + " --yes")
	f.Begin(f.StoreOf("web-8", "orders", nil), clitest.Order("1")) // a process that has not cached the outcome
	f.Golden("requests-resolve")
}

// lostVia leaves a request that an entry has begun and whose process has died.
func lostVia(f *clitest.Fixture, s *idempotency.Store, entry string, key idempotency.Key, opts ...idempotency.Option) (ref string) {
	f.Lost("orders", key, append(opts, idempotency.Via(entry))...)
	return string(s.Ref(key))
}

// The result of a request of idemhttp, idemgrpc or Do is given in the form that its entry replays; another is refused,
// with the flags that are right, and changes nothing (U1 in internal/proof/tested-failures.md).
func TestRequestsResolveByEntry(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.StoreOf("web-7", "orders", nil)
	ctx := testkit.Context(t)
	shown := map[int64]string{}
	revision := func(ref string) string {
		r, _, err := s.Get(ctx, idempotency.Ref(ref))
		require.NoError(t, err)
		if shown[r.Revision] == "" {
			shown[r.Revision] = strconv.Itoa(4721 + len(shown))
			f.Shows(r.Revision, shown[r.Revision])
		}
		return " --revision " + shown[r.Revision] + " --yes"
	}
	resolve := func(ref, flags string) clitest.Result {
		return f.Shell("requests resolve -N test orders " + ref + revision(ref) + " " + flags)
	}
	value := func(key idempotency.Key) []byte {
		_, out, err := s.Begin(ctx, key, "payload")
		require.NoError(t, err)
		return out.Value
	}
	http := lostVia(f, s, "http", clitest.Order("1"))
	f.Shell("requests get -N test orders " + http)
	require.Equal(t, exit.Usage, resolve(http, "--done testdata/result.json").Code)
	require.Equal(t, exit.Usage, resolve(http, "--status 201 --header 'Set-Cookie: a=b'").Code)
	require.Equal(t, exit.Usage, resolve(http, "--header 'Location: /orders/1' --done testdata/result.json").Code)
	require.Equal(t, exit.Usage, resolve(http, "--status 201 --header '' --header 'Location: /orders/1'").Code) // U8
	require.Equal(t, exit.Usage, resolve(http, "--status 204 --body testdata/result.json").Code)
	require.Equal(t, exit.Usage, resolve(http, "--status 201 --body -").Code)
	r, _, err := s.Get(ctx, idempotency.Ref(http))
	require.NoError(t, err)
	require.Equal(t, idempotency.Unknown, r.State, "nothing was changed")
	require.Zero(t, resolve(http, "--status 201 --header 'Content-Type: application/json' --header 'Location: /orders/1' --body testdata/result.json").Code)
	res, err := idemhttp.Decode(value(clitest.Order("1")))
	require.NoError(t, err)
	require.Equal(t, 201, res.Status)
	require.Equal(t, "/orders/1", res.Header.Get("Location"))
	require.JSONEq(t, `{"charge":7}`, string(res.Body))
	require.Zero(t, resolve(http, "--status 402").Code, "a correction")

	rpc := lostVia(f, s, "grpc", clitest.Order("2"))
	file := filepath.Join(t.TempDir(), "receipt.bin")
	require.NoError(t, os.WriteFile(file, []byte("\n\x02r1"), 0o600))
	f.Shows(file, "receipt.bin")
	require.Equal(t, exit.Usage, resolve(rpc, "--status 201").Code)
	require.Equal(t, exit.Usage, resolve(rpc, "--message receipt.bin").Code)
	require.Equal(t, exit.Usage, resolve(rpc, "--message testdata/result.json --message-type shop.v1.Receipt").Code)
	require.Equal(t, exit.Usage, resolve(rpc, "--message - --message-type google.protobuf.StringValue").Code)
	require.Equal(t, exit.Usage, resolve(rpc, "--code DECLINED").Code)
	require.Zero(t, resolve(rpc, "--message receipt.bin --message-type google.protobuf.StringValue").Code)
	call, ok := forms.ParseCall(value(clitest.Order("2")))
	require.True(t, ok)
	var packed anypb.Any
	require.NoError(t, proto.Unmarshal(call.Body, &packed))
	m, err := packed.UnmarshalNew()
	require.NoError(t, err)
	require.Equal(t, "r1", m.(*wrapperspb.StringValue).Value)
	require.Zero(t, resolve(rpc, "--code FAILED_PRECONDITION --text 'card declined'").Code)

	resolvesRPC(f, s, resolve, value)

	do := lostVia(f, s, "do", clitest.Order("3"))
	require.Equal(t, exit.Usage, resolve(do, "--done main.go").Code)
	require.Equal(t, exit.Usage, resolve(do, "--status 201").Code)
	require.Zero(t, resolve(do, "--done testdata/result.json").Code)
	f.Golden("requests-resolve-entries")
}

// resolvesRPC resolves calls of RPC behind idemhttp (V31): their clients read messages, and no plain response.
func resolvesRPC(f *clitest.Fixture, s *idempotency.Store, resolve func(ref, flags string) clitest.Result, value func(idempotency.Key) []byte) {
	t := f.T
	inJSON := lostVia(f, s, "http/connect+json", clitest.Order("4"))
	require.Equal(t, exit.Usage, resolve(inJSON, "--status 201 --body testdata/result.json").Code)
	require.Equal(t, exit.Usage, resolve(inJSON, "--message receipt.bin").Code)
	require.Zero(t, resolve(inJSON, "--message testdata/result.json").Code)
	res, err := idemhttp.Decode(value(clitest.Order("4")))
	require.NoError(t, err)
	require.Equal(t, "application/json", res.Header.Get("Content-Type"))
	require.JSONEq(t, `{"charge":7}`, string(res.Body))

	inGRPC := lostVia(f, s, "http/grpc", clitest.Order("5"), idempotency.Returns("google.protobuf.StringValue"))
	f.Shell("requests get -N test orders " + inGRPC + " -o json")
	require.Equal(t, exit.Usage, resolve(inGRPC, "--message receipt.bin").Code)
	require.Equal(t, exit.Usage, resolve(inGRPC, "--message receipt.bin --message-type google.protobuf.BytesValue").Code)
	require.Zero(t, resolve(inGRPC, "--message receipt.bin --message-type google.protobuf.StringValue").Code)
	res, err = idemhttp.Decode(value(clitest.Order("5")))
	require.NoError(t, err)
	require.Equal(t, "\x00\x00\x00\x00\x04\n\x02r1", string(res.Body))
	require.Zero(t, resolve(inGRPC, "--code FAILED_PRECONDITION --text 'card declined'").Code, "a correction")
}

// While the process of a lost attempt lives, the request does not run again without --force (U3).
func TestRequestsOfALiveProcess(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.StoreOf("web-7", "orders", &idempotency.Options{OnLost: idempotency.Refuse, Codec: backwards{}})
	ctx := testkit.Context(t)
	for _, id := range []string{"1", "2"} {
		a := f.Begin(s, clitest.Order(id), idempotency.Note("order "+id))
		_, err := idempotency.Step(a, "reserve the goods", func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		require.NoError(t, a.Abandon(ctx))
		r, _, err := s.Get(ctx, s.Ref(clitest.Order(id)))
		require.NoError(t, err)
		f.Shows(r.Revision, "472"+id)
	}
	one, two := string(s.Ref(clitest.Order("1"))), string(s.Ref(clitest.Order("2")))
	f.Shell("requests get -N test orders " + one)
	f.Shell("requests get -N test orders " + one + " -o json")
	require.Equal(t, exit.Failed, f.Shell("requests resolve -N test orders "+one+" --revision 4721 --yes --not-done").Code)
	require.Equal(t, exit.Failed, f.Shell("requests delete -N test orders "+two+" --revision 4722 --yes").Code)
	require.Zero(t, f.Shell("requests resolve -N test orders "+one+" --revision 4721 --yes --not-done --force -o json").Code)
	require.Zero(t, f.Shell("requests delete -N test orders "+two+" --revision 4722 --yes --force").Code)
	f.Golden("requests-alive")
}

// Many requests of unknown outcome are resolved together: those that the flags select, as they were listed, and what
// changes meanwhile or may still be at work stays (U5).
func TestRequestsResolveMany(t *testing.T) {
	t.Parallel()
	f := clitest.New(t)
	s := f.StoreOf("web-7", "orders", &idempotency.Options{OnLost: idempotency.Refuse})
	ctx := testkit.Context(t)
	f.Lost("orders", clitest.Order("1"))
	f.Lost("orders", idempotency.Key{Scope: "tenant-8", Op: "POST /orders", ID: "2"})
	f.Lost("orders", idempotency.Key{Scope: "tenant-7", Op: "POST /refunds", ID: "3"})
	require.NoError(t, f.Begin(s, clitest.Order("4")).Abandon(ctx))
	all := "requests resolve -N test orders --state unknown"
	for _, wrong := range []string{
		"requests resolve -N test orders --not-done", all + " --done testdata/result.json", all + " --not-done --revision 4711",
		"requests resolve -N test orders --state done --not-done", all + " --scope tenant-7 --not-done", all + " --op '' --failed x --yes", all + " --scope '' --failed x --yes", "requests resolve -N test orders " + string(s.Ref(clitest.Order("1"))) + " --scope tenant-7 --not-done",
	} {
		require.Equal(t, exit.Usage, f.Run(clitest.Words(t, wrong)...).Code, wrong)
	}
	require.Equal(t, exit.Failed, f.Run(clitest.Words(t, all+" --older-than 1h --not-done --yes")...).Code)
	states := func() map[idempotency.State]int {
		n := map[idempotency.State]int{}
		for r, err := range s.List(ctx, idempotency.Filter{}) {
			require.NoError(t, err)
			n[r.State]++
		}
		return n
	}
	require.Equal(t, map[idempotency.State]int{idempotency.Unknown: 4}, states(), "nothing was changed")

	r := f.Run(clitest.Words(t, all+" --scope tenant-7 --op 'POST /orders' --not-done --yes -o json")...)
	require.Equal(t, exit.Failed, r.Code, "one of them may still be at work")
	require.JSONEq(t, fmt.Sprintf(`{"schema":"etcdkit.requests-resolved/v1","selected":[{"state":"unknown","policy":"refuse","process_alive":true,"requests":1,"effect":"none: the process lives"},{"state":"unknown","policy":"refuse","process_alive":false,"requests":1,"effect":"the next duplicate does the work; it would be refused"}],"left_refs":[],"resolved_refs":[%q],"refused":[{"ref":%q,"error":"request %s of store orders is unknown, attempt 1 by web-7, revision %d: process of the attempt lives, so the attempt may still be working; nothing was changed"}]}`,
		s.Ref(clitest.Order("1")), s.Ref(clitest.Order("4")), s.Ref(clitest.Order("4")), revisionOf(f, s, clitest.Order("4"))), r.Out)
	require.Equal(t, map[idempotency.State]int{idempotency.Unknown: 3, idempotency.Released: 1}, states())
	f.Shows(revisionOf(f, s, clitest.Order("4")), "4721")
	f.Shell(all + " --scope tenant-8 --failed 'never charged: bad input'")
	f.Shell(all + " --scope tenant-8 --failed 'never charged: bad input' --yes")
	f.Shell(all + " --op 'POST /orders' --failed 'never charged' --yes")
	f.Shell(all + " --op 'POST /orders' --not-done --yes -o json")
	f.Shell(all + " --op 'POST /orders' --not-done --yes --force")
	require.Equal(t, map[idempotency.State]int{idempotency.Unknown: 1, idempotency.Released: 2, idempotency.Failed: 1}, states())
	f.Golden("requests-resolve-many")
}

func revisionOf(f *clitest.Fixture, s *idempotency.Store, key idempotency.Key) int64 {
	r, _, err := s.Get(testkit.Context(f.T), s.Ref(key))
	require.NoError(f.T, err)
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
	f := clitest.New(t)
	s := f.StoreOf("web-7", "orders", &idempotency.Options{Codec: backwards{}})
	require.NoError(t, f.Begin(s, clitest.Order("1")).Commit(testkit.Context(t), []byte("secret")))
	ref := string(s.Ref(clitest.Order("1")))
	r := f.Run("requests", "get", "-N", "test", "orders", ref)
	require.Zero(t, r.Code, r.Err)
	require.Contains(t, r.Out, "6 bytes")
	r = f.Run("requests", "get", "-N", "test", "orders", ref, "--show-result")
	require.Equal(t, exit.Failed, r.Code)
	require.Contains(t, r.Err, `it was written by codec "backwards"`)
	require.NotContains(t, r.Out+r.Err, "terces")

	require.NoError(t, f.Begin(s, clitest.Order("2")).Abandon(testkit.Context(t)))
	r = f.Run("requests", "resolve", "-N", "test", "orders", string(s.Ref(clitest.Order("2"))), "--yes", "--revision", fmt.Sprint(revisionOf(f, s, clitest.Order("2"))), "--done", "testdata/result.json")
	require.Equal(t, exit.Usage, r.Code)
	require.Contains(t, r.Err, `Codec "backwards"`)
}
