package commit_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// gathering is a group of which so many requests are under way that all others gather.
type gathering struct {
	*fixture
	*commit.Group
	inj  *embedtest.Injection
	done sync.WaitGroup
}

func (f *fixture) gathering() *gathering {
	f.t.Helper()
	g := &gathering{fixture: f}
	g.Group = commit.NewGroup(ctxT(f.t), f.client, commit.GroupsAtOnce, func(fn func()) bool { g.done.Go(fn); return true })
	g.WaitUntilSent()
	g.inj = f.client.Inject(embedtest.Fault{Method: "Txn", Times: commit.GroupsAtOnce, Do: embedtest.HoldResponse})
	for n := range commit.GroupsAtOnce {
		g.create(fmt.Sprint("first", n))
	}
	require.Eventually(f.t, func() bool { return g.inj.Hits() == commit.GroupsAtOnce }, testkit.Soon, time.Millisecond)
	f.client.ResetRequests()
	return g
}

// gathered waits until that many wait for company.
func (g *gathering) gathered(many int) {
	g.t.Helper()
	require.Eventually(g.t, func() bool { return g.Waiting() == many }, testkit.Soon, time.Millisecond)
}

// goes lets those who have gathered go, and waits until all have ended.
func (g *gathering) goes() { g.inj.Release(); g.done.Wait() }

// made is what comes of a creation.
type made struct {
	commit.Result
	err   error
	ended chan struct{}
}

func (g *gathering) creation(name string) commit.Creation {
	c := g.fixture.creation()
	c.Key = g.prefix + name
	c.Together = commit.Together{Group: g.Group, Subjects: []string{name}}
	return c
}

func (g *gathering) create(name string) *made {
	return g.createWith(ctxT(g.t), g.creation(name))
}

func (g *gathering) createWith(ctx context.Context, c commit.Creation) *made {
	return g.createBy(ctx, g.fixture, c)
}

func (g *gathering) createBy(ctx context.Context, f *fixture, c commit.Creation) *made {
	m := &made{ended: make(chan struct{})}
	g.done.Go(func() {
		defer close(m.ended)
		m.Result, m.err = f.fence.Create(ctx, c)
	})
	return m
}

// amended is what comes of an amendment.
type amended struct {
	commit.Amending
	err error
}

// place creates keys, and returns their mod revision.
func (g *gathering) place(names ...string) int64 {
	g.t.Helper()
	var puts []clientv3.Op
	for _, name := range names {
		puts = append(puts, clientv3.OpPut(g.prefix+name, "before"))
	}
	resp, err := g.cluster.Client().Txn(ctxT(g.t)).Then(puts...).Commit()
	require.NoError(g.t, err)
	return resp.Header.Revision
}

func (g *gathering) amend(name string, mod int64, to string, opts ...clientv3.OpOption) *amended {
	a := &amended{}
	g.done.Go(func() {
		a.Amending, a.err = commit.Amend(ctxT(g.t), g.client, commit.Amendment{
			Key: g.prefix + name, Mod: mod, Then: []clientv3.Op{clientv3.OpPut(g.prefix+name, to, opts...)},
			Mine:     func(kv *mvccpb.KeyValue) bool { return kv != nil && string(kv.Value) == to },
			Together: commit.Together{Group: g.Group, Subjects: []string{name}},
		})
	})
	return a
}

// Whatever comes of the request in which writes go together, each comes to its own end, once,
// and gets the error.
func TestGroup(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]embedtest.Fault{
		"all is well":                {},
		"answer lost":                {Do: embedtest.DropResponse},
		"answer lost, no words":      {Do: embedtest.DropResponse, Err: status.Error(codes.Unknown, "?")},
		"answer lost, and again":     {Do: embedtest.DropResponse, Times: 5},
		"repeated by clientv3":       {Do: embedtest.DropResponse, Err: status.Error(codes.Canceled, "reset by the server")},
		"request lost":               {Do: embedtest.FailWith},
		"sent twice":                 {Do: embedtest.Duplicate},
		"too many requests":          {Do: embedtest.FailWith, Err: rpctypes.ErrGRPCRequestTooManyRequests},
		"too large for one":          {Do: embedtest.FailWith, Err: rpctypes.ErrGRPCRequestTooLarge},
		"too many parts for one":     {Do: embedtest.FailWith, Err: rpctypes.ErrGRPCTooManyOps},
		"refused though it was done": {Do: embedtest.DropResponse, Err: rpctypes.ErrGRPCLeaseNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newFixture(t, embedtest.Shared(t)).gathering()
			g.place("taken")
			mod := g.place("one", "two", "three")
			g.place("three")
			a, b, taken := g.create("a"), g.create("b"), g.create("taken")
			one, two, three := g.amend("one", mod, "after"), g.amend("two", mod, "after"), g.amend("three", mod, "after")
			g.gathered(6)
			if fault.Method = "Txn"; fault.Do != embedtest.Pass {
				g.client.Inject(fault)
			}
			g.goes()
			for name, m := range map[string]*made{"a": a, "b": b} {
				require.NoError(t, m.err)
				kv := g.get(g.prefix + name).Kvs[0]
				require.Equal(t, kv.CreateRevision, m.Token)
				require.Equal(t, kv.ModRevision, m.Token, "written once")
			}
			require.ErrorIs(t, taken.err, commit.ErrOccupied)
			for name, m := range map[string]*amended{"one": one, "two": two} {
				require.NoError(t, m.err)
				require.Equal(t, commit.Amended, m.Outcome)
				kv := g.get(g.prefix + name).Kvs[0]
				require.Equal(t, kv.ModRevision, m.Mod)
				require.EqualValues(t, 2, kv.Version, "written once")
			}
			require.NoError(t, three.err)
			require.Equal(t, commit.Overtaken, three.Outcome)
			require.Equal(t, "before", string(g.get(g.prefix + "three").Kvs[0].Value))
			if fault.Do == embedtest.Pass {
				require.Equal(t, a.Token, b.Token, "it was one request")
				require.Equal(t, a.Token, one.Mod)
				require.Equal(t, map[string]int{"Txn": 2}, g.client.Requests(), "and a look at what had taken a key")
			}
		})
	}
}

// What is wrong with one costs the others nothing.
func TestGroupWithABadPart(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]func(g *gathering, mod int64) (check func(t *testing.T)){
		"its lease is gone": func(g *gathering, mod int64) func(*testing.T) {
			m := g.amend("bad", mod, "after", clientv3.WithLease(12345))
			return func(t *testing.T) {
				require.NoError(t, m.err)
				require.Equal(t, commit.LeaseGone, m.Outcome)
			}
		},
		"its session is lost": func(g *gathering, _ int64) func(*testing.T) {
			gone := newFixture(g.t, g.cluster)
			_, err := g.cluster.Client().Revoke(ctxT(g.t), gone.lease)
			require.NoError(g.t, err)
			m := g.createBy(ctxT(g.t), gone, g.creation("of the gone"))
			return func(t *testing.T) {
				require.ErrorIs(t, m.err, commit.ErrGone)
				require.False(t, g.exists(g.prefix+"of the gone"))
			}
		},
		"it is nonsense": func(g *gathering, _ int64) func(*testing.T) {
			c := g.creation("nonsense")
			c.Also = []clientv3.Op{clientv3.OpPut(c.Key, "the same key twice")}
			m := g.createWith(ctxT(g.t), c)
			return func(t *testing.T) {
				require.ErrorContains(t, m.err, "duplicate key")
				require.False(t, g.exists(c.Key))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newFixture(t, embedtest.Shared(t)).gathering()
			mod := g.place("one", "bad")
			check := part(g, mod)
			a, one := g.create("a"), g.amend("one", mod, "after")
			g.gathered(3)
			g.goes()
			check(t)
			require.NoError(t, a.err)
			require.Equal(t, g.get(g.prefix + "a").Kvs[0].ModRevision, a.Token)
			require.NoError(t, one.err)
			require.Equal(t, commit.Amended, one.Outcome)
			require.EqualValues(t, 2, g.get(g.prefix + "one").Kvs[0].Version)
		})
	}
}

// S1: two writes of one subject do not go in one request: both would find the key as it
// was, and etcd refuses to put it twice. The second does not wait for others, either.
func TestTrapS1Subjects(t *testing.T) {
	t.Parallel()
	g := newFixture(t, embedtest.Shared(t)).gathering()
	mod := g.place("one", "two")
	all := []*amended{g.amend("one", mod, "by x"), g.amend("one", mod, "by y"), g.amend("two", mod, "by z")}
	g.gathered(2)
	require.Eventually(t, func() bool { return g.client.Requests()["Txn"] == 1 }, testkit.Soon, time.Millisecond)
	g.goes()
	outcomes := map[commit.Outcome]int{}
	for _, m := range all {
		require.NoError(t, m.err)
		outcomes[m.Outcome]++
	}
	require.Equal(t, map[commit.Outcome]int{commit.Amended: 2, commit.Overtaken: 1}, outcomes)
	require.Equal(t, map[string]int{"Txn": 2}, g.client.Requests(), "none was refused")
	require.EqualValues(t, 2, g.get(g.prefix + "one").Kvs[0].Version)
}

// F46: a caller that leaves while its creation is under way with others has it discarded, however late
// it comes; the others get theirs.
func TestCallerLeavesItsGroup(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]embedtest.Action{"it was done": embedtest.HoldResponse, "it comes later": embedtest.HoldRequest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newFixture(t, embedtest.Shared(t)).gathering()
			ctx, leave := context.WithCancel(ctxT(t))
			defer leave()
			gone, stays := g.createWith(ctx, g.creation("gone")), g.create("stays")
			g.gathered(2)
			inj := g.client.Inject(embedtest.Fault{Method: "Txn", Do: do})
			g.inj.Release()
			require.NoError(t, inj.WaitHit(ctxT(t)))
			leave()
			<-gone.ended
			var pending *commit.PendingError
			require.ErrorAs(t, gone.err, &pending)
			require.NoError(t, pending.Discard(ctxT(t)))
			inj.Release()
			g.done.Wait()
			require.False(t, g.exists(g.prefix+"gone"))
			require.NoError(t, stays.err)
			require.Equal(t, g.get(g.prefix + "stays").Kvs[0].ModRevision, stays.Token)
		})
	}
}

// A request has 64 parts at most, and a quarter of a MiB; what is large goes alone.
func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ many, bytes, requests int }{
		"many":       {130, 10, 3},
		"large":      {10, 60 << 10, 3},
		"very large": {3, 70 << 10, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newFixture(t, embedtest.Shared(t)).gathering()
			var all []*made
			for n := range tt.many {
				c := g.creation(fmt.Sprint("k", n))
				c.Also = []clientv3.Op{clientv3.OpPut(c.Key+"/value", strings.Repeat("x", tt.bytes))}
				all = append(all, g.createWith(ctxT(t), c))
			}
			if tt.bytes <= 64<<10 {
				g.gathered(tt.many)
			}
			g.goes()
			revisions := map[int64]bool{}
			for _, m := range all {
				require.NoError(t, m.err)
				revisions[m.Token] = true
			}
			require.Len(t, revisions, tt.requests)
			require.Equal(t, map[string]int{"Txn": tt.requests}, g.client.Requests())
		})
	}
}

// L3: without space all are refused, as each would be alone, and what is discarded then is
// gone.
func TestGroupWithoutSpace(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, nil)
	if c.External() {
		t.Skip("the external cluster is not this test's own")
	}
	g := newFixture(t, c).gathering()
	mod := g.place("one")
	a, one := g.create("a"), g.amend("one", mod, "after")
	g.gathered(2)
	require.NoError(t, c.SetNoSpace(ctxT(t), true))
	g.goes()
	require.ErrorIs(t, one.err, rpctypes.ErrNoSpace)
	require.ErrorIs(t, a.err, rpctypes.ErrNoSpace)
	var pending *commit.PendingError
	require.ErrorAs(t, a.err, &pending)
	require.NoError(t, c.SetNoSpace(ctxT(t), false))
	require.NoError(t, pending.Discard(ctxT(t)))
	require.False(t, g.exists(g.prefix+"a"))
	require.EqualValues(t, 1, g.get(g.prefix + "one").Kvs[0].Version)
}

func TestBytesOfATxn(t *testing.T) {
	t.Parallel()
	get := clientv3.OpGet("range", clientv3.WithRange("end"))                             // 8
	put := clientv3.OpPut("key", "value")                                                 // 8
	cmp := clientv3.Compare(clientv3.Value("key"), "=", "four")                           // 7
	nested := clientv3.OpTxn([]clientv3.Cmp{cmp}, []clientv3.Op{put}, []clientv3.Op{get}) // 23
	require.Equal(t, 7+8+23+8, commit.BytesOf([]clientv3.Cmp{cmp}, []clientv3.Op{put, nested}, []clientv3.Op{get}))
	require.Zero(t, commit.BytesOf(nil, nil, nil))
}

// panicking is a client that panics, as an interceptor of the program's can.
type panicking struct{ clientv3.KV }

func (panicking) Txn(context.Context) clientv3.Txn { panic("test") }

// A write that panics in its caller's goroutine is no more waited for.
func TestPanicsGiveTheirPlaceFree(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t))
	g := commit.NewGroup(ctxT(t), f.client, 1, func(func()) bool { return false })
	g.WaitUntilSent()
	am := commit.Amendment{Key: f.key(), Then: []clientv3.Op{clientv3.OpPut(f.key(), "x")}, Together: commit.Together{Group: g, Subjects: []string{"x"}}}
	require.Panics(t, func() { _, _ = commit.Amend(ctxT(t), panicking{}, am) })
	for range 2 {
		res, err := commit.Amend(ctxT(t), f.client, am)
		require.NoError(t, err)
		am.Mod = res.Mod
	}
}
