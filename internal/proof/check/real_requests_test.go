package check

import (
	"context"
	"crypto/sha256"
	hexes "encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// realStores are the stores of a run's workers.
func realStores(r *real) (stores []*idempotency.Store) {
	r.rec.Set(SettingRetain, "1s")
	for _, w := range r.workers {
		st, err := idempotency.NewStore(w.sess, "st", &idempotency.Options{SingleTenant: true, Retain: time.Second, RetainUnknown: 2 * time.Second})
		require.NoError(r.t, err)
		stores = append(stores, st)
	}
	return stores
}

// recordOf returns how a history calls a request: its record's key.
func (r *real) recordOf(id string) string {
	root := r.workers[0].sess.NamespacePrefix()
	space, err := keyspace.New(strings.TrimSuffix(root, "/v1/ns/"), "ns")
	require.NoError(r.t, err)
	return strings.TrimPrefix(space.Store("st").Entry("", "op", id).Record, root)
}

var errOwn = errors.New("the function's own error")

// request asks for a request, whose function does that, and records all of it.
func (w *worker) request(st *idempotency.Store, id string, do func(a *idempotency.Attempt) error, opts ...idempotency.Option) {
	gate := w.recordOf(id)
	call := w.rec.Call(history.Event{Name: history.RequestDo, Gate: gate, Attr: map[string]string{"payload": "p"}})
	var end *history.Call
	res, err := idempotency.Do(w.ctx(), st, idempotency.Key{Op: "op", ID: id}, "p", func(_ context.Context, a *idempotency.Attempt) (string, error) {
		start := w.rec.Call(history.Event{Name: history.RequestStart, Gate: gate, N: int64(a.Attempt()), Token: a.Token(),
			Attr: map[string]string{"call": call.Tag(), "retain": "1s", "unknown": "2s", "atmost": "15m"}})
		b := start.Granted(a.Token())
		b.Check(a)
		err := do(a)
		b.Check(a)
		b.End(history.Released)
		as := "done"
		if err != nil {
			as = "released"
		}
		end = w.rec.Call(history.Event{Name: history.Release, Gate: gate, Token: a.Token(), Attr: map[string]string{"as": as}})
		return call.Tag(), err
	}, opts...)
	if end != nil {
		end.Return(history.Event{Outcome: history.OK})
	}
	e := history.Event{Outcome: history.OK, Cause: history.Ran, Token: res.Token}
	switch {
	case errors.Is(err, idempotency.ErrInProgress):
		e.Cause = history.InProgress
	case err != nil:
		e = history.Event{Outcome: history.Fail, Error: err.Error()}
	default:
		value, _ := json.Marshal(res.Value)
		sum := sha256.Sum256(value)
		e.Attr = map[string]string{"sum": hexes.EncodeToString(sum[:])}
		if res.Replayed {
			e.Cause = history.Replayed
		}
	}
	call.Return(e)
}

// expired waits until all records of requests have expired.
func (r *real) expired() {
	require.Eventually(r.t, func() bool {
		left, err := r.admin.Get(r.ctx(), r.workers[0].sess.NamespacePrefix()+"idempotency/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(r.t, err)
		return left.Count == 0
	}, time.Minute, 50*time.Millisecond)
}

// TestRealRequests: requests of the product on a real etcd, judged green.
func TestRealRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for leases: 4 s")
	}
	t.Parallel()
	r := startReal(t)
	for _, name := range []string{EffectAttempts, EffectReplays} {
		r.rec.Set(RequirePrefix+name, "1")
	}
	var wg sync.WaitGroup
	for i, st := range realStores(r) {
		w := r.workers[i]
		for j := range 3 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				for n := range 20 {
					opts := []idempotency.Option{}
					if rng.IntN(3) == 0 {
						opts = append(opts, idempotency.Wait(0))
					}
					w.request(st, fmt.Sprint("key-", n/2), func(a *idempotency.Attempt) error {
						if rng.IntN(3) == 0 {
							_, err := idempotency.Step(a, "step", func(context.Context) (int, error) { return 1, nil })
							return err
						}
						if rng.IntN(4) == 0 {
							return errOwn
						}
						return nil
					}, opts...)
				}
			})
		}
	}
	wg.Wait()
	report := r.judge()
	require.Equal(t, Green, report.Verdict, report)
}

// TestRealRequestsTampered: the same with undeclared interference.
func TestRealRequestsTampered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		during, after func(r *real, key string)
		killer        string
	}{
		"delete": {during: func(r *real, key string) {
			_, err := r.admin.Delete(r.ctx(), key)
			require.NoError(r.t, err)
		}, killer: "requests/kept"},
		"garbage": {during: func(r *real, key string) {
			_, err := r.admin.Put(r.ctx(), key, "garbage", clientv3.WithIgnoreLease())
			require.NoError(r.t, err)
		}, killer: "requests/record"},
		"another outcome": {after: func(r *real, key string) {
			resp, err := r.admin.Get(r.ctx(), key)
			require.NoError(r.t, err)
			require.Len(r.t, resp.Kvs, 1)
			other := strings.Replace(string(resp.Kvs[0].Value), `"attempt":1`, `"attempt":2`, 1)
			require.NotEqual(r.t, other, string(resp.Kvs[0].Value))
			_, err = r.admin.Put(r.ctx(), key, other, clientv3.WithIgnoreLease())
			require.NoError(r.t, err)
		}, killer: "requests/changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startReal(t)
			w, st := r.workers[0], realStores(r)[0]
			key := w.sess.NamespacePrefix() + r.recordOf("k")
			w.request(st, "k", func(*idempotency.Attempt) error {
				if tt.during != nil {
					tt.during(r, key)
					require.NoError(t, r.tap.Complete(w.ctx()))
				}
				return nil
			})
			if tt.after != nil {
				tt.after(r, key)
			}
			report := r.judge()
			require.Equal(t, Red, report.Verdict)
			require.Contains(t, report.Killers(), tt.killer, report.String())
		})
	}
}
