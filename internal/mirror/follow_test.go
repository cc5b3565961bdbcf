package mirror_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
)

// T4: the events of one revision come together; what was there before comes by
// the list; one watch and one list do for all of it.
func TestFollow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, embedtest.Shared(t), nil)
	f.put("a", "1")
	f.follow()
	f.upToDate()
	f.put("b", "2")
	f.del("a")
	f.upToDate()
	_, err := f.cluster.Client().Txn(ctxT(t)).Then(
		clientv3.OpPut(f.prefix+"c", "3"), clientv3.OpDelete(f.prefix+"b"), clientv3.OpPut(f.prefix+"d", "4")).Commit()
	require.NoError(t, err)
	f.copy.shows(map[string]string{f.prefix + "c": "3", f.prefix + "d": "4"})
	require.Equal(t, 1, f.resets())
	f.copy.mu.Lock()
	require.Equal(t, []int{1, 1, 3}, f.copy.applied)
	f.copy.mu.Unlock()
	r := f.client.Requests()
	require.Equal(t, []int{1, 1}, []int{r["Watch.Send"], r["Range"]}, "%v", r)
}

// Changes between the creation of the watch and the list are neither lost nor
// applied twice.
func TestFollowChangesDuringList(t *testing.T) {
	t.Parallel()
	for _, do := range []embedtest.Action{embedtest.HoldRequest, embedtest.HoldResponse} {
		f := newFixture(t, embedtest.Shared(t), nil)
		f.put("x", "before")
		inj := f.client.Inject(embedtest.Fault{Method: "Range", Do: do})
		f.follow()
		require.NoError(t, inj.WaitHit(ctxT(t)))
		f.put("a", "1")
		f.put("b", "1")
		f.del("b")
		require.NoError(t, inj.Release())
		f.upToDate()
	}
}
