package commit_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/commit"
)

// The creations of a session compare its fence once for all of them in a request. Where that fails,
// nothing of that session is created, and the rest of the request is as it would be alone.
func TestFenceIsComparedOnce(t *testing.T) {
	t.Parallel()
	c := embedtest.Shared(t)
	live, lost, raised := newFixture(t, c), newFixture(t, c), newFixture(t, c)
	g := live.gathering()
	mod := g.place("amended", "changed", "occupied")
	var mu sync.Mutex
	compared := map[string]int{}
	g.client.Inject(embedtest.Fault{Method: "Txn", Times: -1, Do: embedtest.Pass, Match: func(_ string, msg any) bool {
		mu.Lock()
		defer mu.Unlock()
		if r, ok := msg.(*etcdserverpb.TxnRequest); ok && len(r.Compare) == 0 { // not one that is sent alone
			count(r, compared)
		}
		return false
	}})
	made := map[string]*made{}
	for _, f := range []*fixture{live, lost, raised} {
		for n := range 3 {
			cr := g.creation(fmt.Sprint(f.prefix, n))
			cr.Read = []clientv3.Op{clientv3.OpGet(cr.Key)}
			made[cr.Key] = g.createBy(ctxT(t), f, cr)
		}
	}
	taken := g.create("occupied")
	reads := g.creation("reads")
	reads.If = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(g.prefix+"nothing"), ">", 0)}
	reads.Else = []clientv3.Op{clientv3.OpGet(live.presence())}
	refused := g.createWith(ctxT(t), reads)
	done, changed := g.amend("amended", mod, "x"), g.amend("changed", mod-1, "x")
	g.gathered(13)
	_, err := c.Client().Delete(ctxT(t), lost.presence())
	require.NoError(t, err)
	_, err = c.Client().Put(ctxT(t), raised.presence(), "here", clientv3.WithLease(raised.lease))
	require.NoError(t, err)
	g.goes()

	for n := range 3 {
		name := func(f *fixture) string { return g.prefix + fmt.Sprint(f.prefix, n) }
		for _, f := range []*fixture{live, raised} {
			m := made[name(f)]
			require.NoError(t, m.err)
			kv := g.get(name(f)).Kvs[0]
			require.Equal(t, kv.CreateRevision, m.Token)
			require.Equal(t, kv.Value, m.Read[0].GetResponseRange().Kvs[0].Value, "each gets the response to its own part")
		}
		require.ErrorIs(t, made[name(lost)].err, commit.ErrGone)
		require.False(t, g.exists(name(lost)))
	}
	require.ErrorIs(t, taken.err, commit.ErrOccupied)
	require.NoError(t, refused.err)
	require.Zero(t, refused.Token)
	require.Len(t, refused.Read, 1)
	require.NoError(t, done.err)
	require.Equal(t, commit.Amended, done.Outcome)
	require.Equal(t, commit.Overtaken, changed.Outcome)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string]int{live.presence(): 2, lost.presence(): 1, raised.presence(): 1}, compared, "a part that reads has its own")
}

// count counts the compares of presence keys in a Txn.
func count(r *etcdserverpb.TxnRequest, compared map[string]int) {
	for _, c := range r.Compare {
		if c.Target == etcdserverpb.Compare_MOD && c.GetModRevision() > 0 && string(c.Key[len(c.Key)-5:]) == "alive" {
			compared[string(c.Key)]++
		}
	}
	for _, op := range r.Success {
		if nested := op.GetRequestTxn(); nested != nil {
			count(nested, compared)
		}
	}
}
