package virtual

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/record"
)

// besideOneCutOff has one process take ten shares of a rate, and cuts it off. The other one raises the burst, so that those
// weigh several new ones, and takes what is left.
func besideOneCutOff(t *testing.T, on []*desk, full concurrency.Rate) (k *takers, stop func()) {
	t.Helper()
	k = &takers{}
	first := concurrency.Rate{PerSecond: 100, Burst: 10}
	ends := []func(){k.busy(0, on[0].adopting(first))}
	time.Sleep(5 * time.Second)
	fast := on[1].adopting(first)
	ends = append(ends, k.busy(1, fast))
	time.Sleep(5 * time.Second)
	on[0].client.Stall()
	require.NoError(t, fast.SetRate(t.Context(), full))
	time.Sleep(3 * time.Second)
	return k, func() {
		on[0].client.Heal()
		for _, end := range ends {
			end()
		}
	}
}

// ofRate returns the keys that have this in their name, as they are stored.
func (d *desk) ofRate(part string) []*mvccpb.KeyValue {
	resp, err := d.client.Get(d.t.Context(), prefix, clientv3.WithPrefix())
	require.NoError(d.t, err)
	return slices.DeleteFunc(resp.Kvs, func(kv *mvccpb.KeyValue) bool { return !strings.Contains(string(kv.Key), "rate/"+part) })
}

// TestSameRateKeepsShares: SetRate with the rate that is stored writes nothing, and a rate that was deleted by hand and is
// stored again has requests weigh what they did before. The shares that processes hold stay (A520 in
// internal/proof/tested-failures.md).
func TestSameRateKeepsShares(t *testing.T) {
	t.Parallel()
	full := concurrency.Rate{PerSecond: 100, Burst: 100}
	for name, change := range map[string]func(t *testing.T, d *desk){
		"the same rate": func(t *testing.T, d *desk) {
			was := d.ofRate("limit")
			require.NoError(t, d.adopting(full).SetRate(t.Context(), full))
			require.NoError(t, d.adopting(full).SetRate(t.Context(), concurrency.Rate{PerSecond: 100}))
			require.Equal(t, was, d.ofRate("limit"))
		},
		"deleted and stored again": func(t *testing.T, d *desk) {
			for range 2 {
				_, err := d.client.Delete(t.Context(), string(d.ofRate("limit")[0].Key))
				require.NoError(t, err)
				time.Sleep(time.Second)
			}
			st, err := d.adopting(full).Status(t.Context())
			require.NoError(t, err)
			require.Equal(t, full, st.Rate)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, on []*desk) {
				k, stop := besideOneCutOff(t, on, full)
				defer stop()
				shares := on[1].ofRate("queue/")
				change(t, on[1])
				begun := time.Now()
				time.Sleep(2 * time.Second)
				require.Equal(t, shares, on[1].ofRate("queue/"))
				require.Greater(t, k.between(1, begun, time.Now()), 80, "half of the rate, as before")
			})
		})
	}
}

// TestStatusOfSharesFromBeforeARaise: Status counts the shares of a process that has not read a raise as what they take up of
// the new ones, as processes do that ask for shares (A521 in internal/proof/tested-failures.md).
func TestStatusOfSharesFromBeforeARaise(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		full := concurrency.Rate{PerSecond: 100, Burst: 100}
		_, stop := besideOneCutOff(t, on, full)
		defer stop()
		st, err := on[1].adopting(full).Status(t.Context())
		require.NoError(t, err)
		held := map[int]bool{}
		sum := 0
		for _, h := range st.Holders {
			held[h.Shares] = true
			sum += h.Shares
		}
		require.Equal(t, 60, st.Shares)
		require.Equal(t, map[int]bool{30: true}, held, st)
		require.Equal(t, st.Shares, sum)
	})
}

// TestTokensCountedByALoweredRate: tokens of a slow rate that are counted by a rate which was lowered meanwhile are neither
// stored nor taken (A522 in internal/proof/tested-failures.md). The time since the burst was taken gives ten of them by the
// raised rate, and none by the lowered one.
func TestTokensCountedByALoweredRate(t *testing.T) {
	t.Parallel()
	low := concurrency.Rate{PerSecond: 0.001, Burst: 100}
	for name, c := range map[string]struct {
		burst int // of the raised rate
		fault func(begun time.Time, m etcdfake.Message) etcdfake.Fault
	}{
		// So great a burst needs more time than is measured, and a process stores the tokens again.
		"stored": {100_000, func(_ time.Time, m etcdfake.Message) etcdfake.Fault {
			if txn, ok := m.Body.(*etcdserverpb.TxnRequest); ok && strings.Contains(txn.String(), "/bucket/") {
				return etcdfake.Fault{RequestDelay: 2 * time.Second}
			}
			return etcdfake.Fault{}
		}},
		"loaded": {1000, func(begun time.Time, m etcdfake.Message) etcdfake.Fault {
			return etcdfake.Fault{DropRequest: m.Method == "LeaseTimeToLive" && time.Since(begun) < 2*ttl}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				operator := on[0].adopting(low)
				first, end := on[0].join(t)
				for l, n := first.adopting(low), 0; n < low.Burst; n++ {
					require.NoError(t, l.Wait(t.Context()))
				}
				end(false)
				time.Sleep(100 * time.Second)
				on[0].client.Inject(func(m etcdfake.Message) etcdfake.Fault { // SetRate stores no tokens
					return etcdfake.Fault{DropRequest: m.Method == "LeaseGrant"}
				})
				require.NoError(t, operator.SetRate(t.Context(), concurrency.Rate{PerSecond: 0.1, Burst: c.burst}))
				on[0].client.Inject(nil)
				late, end := on[0].join(t)
				defer end(false)
				begun := time.Now()
				late.client.Inject(func(m etcdfake.Message) etcdfake.Fault { return c.fault(begun, m) })
				l := late.adopting(low)
				require.ErrorIs(t, l.Allow(), concurrency.ErrRateExceeded)
				time.Sleep(time.Second)
				require.NoError(t, operator.SetRate(t.Context(), low))
				time.Sleep(2*ttl + 5*time.Second)
				var exceeded *concurrency.RateExceededError
				require.ErrorAs(t, l.Allow(), &exceeded)
				require.Equal(t, low, exceeded.Rate)
				require.Greater(t, exceeded.RetryAfter, time.Minute)
				stored, ok := record.DecodeTokens(on[0].ofRate("left")[0].Value)
				require.True(t, ok)
				require.Less(t, stored.Left, 1.0)
			})
		})
	}
}
