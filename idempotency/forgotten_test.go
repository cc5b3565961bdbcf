package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A payment of 100 is charged, and its handler fails: the provider's answer was a 502. The key
// is for that payment all the same: with another amount it is refused, and the provider, which
// replays its first answer for a key, is never asked for 99,900 by the key of the 100.
func TestForgottenPayload(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	provider := map[string]int{} // what it has charged, by key
	errGateway := errors.New("502 Bad Gateway")
	pay := func(in instance, amount int, err error) (idempotency.Result[int], error) {
		return idempotency.Do(ctxT(t), in.Store, key("1"), amount, func(_ context.Context, at *idempotency.Attempt) (int, error) {
			child := at.ChildKey("charge")
			if _, ok := provider[child]; !ok {
				provider[child] = amount
			}
			return provider[child], err
		})
	}
	_, err := pay(a, 100, errGateway)
	require.ErrorIs(t, err, errGateway)
	for _, in := range []instance{a, b} {
		res, err := pay(in, 99_900, nil)
		require.ErrorIs(t, err, idempotency.ErrMismatch, "charged %d", res.Value)
	}
	_, err = pay(b, 100, errGateway)
	require.ErrorIs(t, err, errGateway, "the same payment is tried again, as often as it fails")
	_, err = pay(a, 99_900, nil)
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	res, err := pay(a, 100, nil)
	require.NoError(t, err)
	require.Equal(t, 100, res.Value)
	require.Equal(t, 3, res.Attempt)
	require.Len(t, provider, 1, "the attempts at one payment have one key")
}

// What is kept of a request whose function has failed is kept for Retain, as an outcome is, unless
// it is deleted.
func TestForgottenPayloadIsRetained(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, &idempotency.Options{Retain: time.Minute})
	_, err := idempotency.Do(ctxT(t), a.Store, key("1"), 100, func(context.Context, *idempotency.Attempt) (int, error) { return 0, errors.New("failed") })
	reported := time.Now()
	require.ErrorContains(t, err, "failed")
	require.GreaterOrEqual(t, f.keptFor(reported, "/record/", 1), time.Minute)
	_, _, err = a.Begin(ctxT(t), key("1"), 99_900)
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	r, _, err := a.Get(ctxT(t), a.Ref(key("1")))
	require.NoError(t, err)
	require.Equal(t, idempotency.Released, r.State)
	require.NoError(t, a.Delete(ctxT(t), r.Ref))
	at, _, err := a.Begin(ctxT(t), key("1"), 99_900)
	require.NoError(t, err)
	require.Equal(t, 1, at.Attempt())
	require.NoError(t, at.Release(ctxT(t)))
}

// keptFor returns for how long the keys of an outcome are kept from a time on, at least.
func (f fixture) keptFor(from time.Time, part string, n int) time.Duration {
	f.T.Helper()
	resp, err := f.Client().Get(ctxT(f.T), f.Root, clientv3.WithPrefix())
	require.NoError(f.T, err)
	least, found := 1000*time.Hour, 0
	for _, kv := range resp.Kvs {
		if !strings.Contains(string(kv.Key), part) {
			continue
		}
		found++
		asked := time.Now()
		left, err := f.Client().TimeToLive(ctxT(f.T), clientv3.LeaseID(kv.Lease))
		require.NoError(f.T, err)
		least = min(least, asked.Sub(from)+time.Duration(left.TTL)*time.Second)
	}
	require.Equal(f.T, n, found)
	return least
}

// Two payloads never have the same child key, also after the record has gone by Release, by Delete or
// after its retention. It is the same for one payload, in all processes, however
// the payload is written and whatever the Secret is.
func TestChildKeyIsOfThePayload(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, &idempotency.Options{Secret: []byte("rotated")})
	child := func(in instance, payload any, opts ...idempotency.Option) string {
		at, _, err := in.Begin(ctxT(t), key("1"), payload, opts...)
		require.NoError(t, err)
		defer func() { require.NoError(t, at.Release(ctxT(t))) }()
		return at.ChildKey("charge")
	}
	type payment struct {
		To     string `json:"to"`
		Amount int    `json:"amount"`
	}
	seen := map[string]int{}
	for n, same := range [][]any{
		{payment{"x", 100}, json.RawMessage(`{"amount": 100, "to": "x"}`)},
		{payment{"x", 99_900}},
		{nil, "", []byte{}},
		{"100", []byte("100")},
		{json.RawMessage("100"), 100},
		{idempotency.Fingerprint{1}},
		{idempotency.Fingerprint{2}},
	} {
		for _, payload := range same {
			for _, in := range []instance{a, b} {
				got := child(in, payload, idempotency.AlsoCompare(n))
				require.Equal(t, got, child(in, payload), "AlsoCompare may be added between two attempts")
				if before, ok := seen[got]; ok {
					require.Equal(t, n, before, "payload %v", payload)
				}
				seen[got] = n
			}
		}
	}
	require.Len(t, seen, 7)
}
