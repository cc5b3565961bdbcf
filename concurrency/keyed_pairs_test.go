package concurrency_test

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// N1: a process that takes a key for empty writes a request of the total only if it is right. A crowd
// at one cold key leaves, at no revision, a request of the total whose one at the key is not admitted.
func TestTrapN1CrowdAtAColdKey(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	const limit, total, crowd, processes = 5, 10, 200, 4
	var lims []*concurrency.KeyedLimiter
	for range processes {
		s, _ := f.Session(idle())
		lim := totaled(t, s, "llm", limit, total)
		require.NoError(t, acquire(t, ctx, lim.Key("warm")).Release(ctx), "it knows the limits")
		lims = append(lims, lim)
	}
	first, err := f.Client().Get(ctx, f.Root)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range crowd {
		wg.Go(func() {
			p, err := lims[i%processes].Key("cold").Acquire(ctx)
			if assertNoError(t, err) {
				assertNoError(t, p.Release(ctx))
			}
		})
	}
	wg.Wait()
	require.Empty(t, f.Keys("/queue/"))
	seen := pairs{limit: limit, live: map[string]*mvccpb.KeyValue{}}
	end, err := f.Client().Put(ctx, f.Root+"/end", "")
	require.NoError(t, err)
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	for resp := range f.Client().Watch(watch, f.Root, clientv3.WithPrefix(), clientv3.WithRev(first.Header.Revision+1)) {
		require.NoError(t, resp.Err())
		if seen.take(t, resp.Events) >= end.Header.Revision {
			break
		}
	}
	require.Equal(t, crowd, seen.joined)
	t.Logf("%d requests were written at both levels in one Txn, %d one after the other", seen.both, seen.joined-seen.both)
}

// pairs replays the requests of a limiter whose default, for requests of weight 1, does not change.
type pairs struct {
	limit        int
	live         map[string]*mvccpb.KeyValue
	joined, both int
}

// take applies events, which are whole revisions, and checks what each revision leaves.
func (p *pairs) take(t *testing.T, events []*clientv3.Event) (rev int64) {
	for i, ev := range events {
		key := string(ev.Kv.Key)
		rev = ev.Kv.ModRevision
		switch {
		case !strings.Contains(key, "/queue/"):
		case ev.Type == clientv3.EventTypeDelete:
			delete(p.live, key)
		default:
			p.live[key] = ev.Kv
			if strings.Contains(key, "/total/") {
				p.joined++
			}
		}
		if i+1 == len(events) || events[i+1].Kv.ModRevision != rev {
			p.check(t, rev)
		}
	}
	return rev
}

func (p *pairs) check(t *testing.T, rev int64) {
	byKey := map[string][]*mvccpb.KeyValue{} // the requests of each key, oldest first
	for key, kv := range p.live {
		if before, _, ok := strings.Cut(key, "/queue/"); ok {
			byKey[before] = append(byKey[before], kv)
		}
	}
	admitted := map[string]int64{}
	for _, kvs := range byKey {
		slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
		for _, kv := range kvs[:min(p.limit, len(kvs))] {
			admitted[string(kv.Key)] = kv.CreateRevision
		}
	}
	for key, kv := range p.live {
		if !strings.Contains(key, "/total/") {
			continue
		}
		var value struct {
			Of string `json:"at_key"`
		}
		require.NoError(t, json.Unmarshal(kv.Value, &value))
		created, ok := admitted[value.Of]
		require.True(t, ok, "at revision %d %s exists, and %s is not admitted", rev, key, value.Of)
		if kv.ModRevision == rev && created == rev {
			p.both++
		}
	}
}

// N2: an eviction that has read a request before that joined the total removes both, and the permit
// ends with the notice, although its token is that of the total.
func TestTrapN2EvictionBesideAnAdmission(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	evictor, c := f.Session(idle())
	lim, there := totaled(t, s, "llm", 1, 5), totaled(t, evictor, "llm", 1, 5)
	p := acquire(t, ctx, lim.Key("a"))
	w := ask(t, ctx, lim.Key("a"))
	st, err := there.Key("a").Status(ctx)
	require.NoError(t, err)
	require.Len(t, st.Waiters, 1)
	held := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Do: embedtest.HoldRequest})
	evicted := make(chan error, 1)
	go func() { evicted <- there.Key("a").EvictToken(ctx, st.Waiters[0].Token, "half of it") }()
	require.NoError(t, held.WaitHit(ctx), "it has read the request at the key")
	require.NoError(t, p.Release(ctx))
	q := granted(t, w, "it is admitted at its key, and joins the total")
	require.NotEqual(t, st.Waiters[0].Token, q.Token())
	require.NoError(t, q.Err())
	require.Len(t, f.Keys("/queue/"), 2)
	held.Release()
	require.NoError(t, got(t, evicted, "the eviction"))
	require.Empty(t, f.Keys("/queue/"), "one Txn has removed both")
	lostBy(t, q, concurrency.ErrEvicted)
}

// A600: a release whose answer is lost does not show that its request was in the key's queue when that was counted. A request
// that was deleted by hand before is not counted less, so the next one joins no total beside a full key.
func TestLostReleaseOfADeletedRequest(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"answered": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			ctx := ctxT(t)
			s, c := f.Session(idle())
			lim := totaled(t, s, "llm", 2, 5)
			a := lim.Key("a")
			require.NoError(t, acquire(t, ctx, a).Release(ctx), "it knows the limits")
			deleted := acquire(t, ctx, a)
			for _, key := range f.Keys("/queue/") {
				_, err := f.Client().Delete(ctx, key)
				require.NoError(t, err)
			}
			holders := []*concurrency.Permit{acquire(t, ctx, a), acquire(t, ctx, a)}
			if lost {
				fault := c.Inject(embedtest.Fault{Method: "Txn", Match: txn(false), Do: embedtest.DropResponse})
				require.NoError(t, deleted.Release(ctx), "it may have been removed by the request whose answer is lost")
				require.Equal(t, 1, fault.Hits())
			} else {
				require.ErrorIs(t, deleted.Release(ctx), concurrency.ErrLost)
			}
			next := ask(t, ctx, a)
			st, err := lim.Total().Status(ctx)
			require.NoError(t, err)
			require.Len(t, st.Holders, 2, "the limit of the key is 2")
			waiting(t, next, "the key is full")
			require.NoError(t, holders[0].Release(ctx))
			granted(t, next, "one is free")
			require.NoError(t, holders[1].Err())
		})
	}
}
