package idempotency_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// Trap S5: an outcome that was long on its way hangs on a lease that was granted when it
// set out. It is moved to another, so that it is kept for the whole retention, counted from
// the record.
func TestTrapS5LateCommit(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a lease to age: 6 s")
	}
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, &idempotency.Options{Retain: 10 * time.Second})
	for name, parts := range map[string]int{"small": 0, "in parts": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := begin(t, a, key(name))
			seen := f.Client().Watch(ctxT(t), f.prefix, clientv3.WithPrefix())
			inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.FailWith, Times: -1})
			done := make(chan error, 1)
			go func() { done <- at.Commit(ctxT(t), make([]byte, parts<<20+1)) }()
			require.Eventually(t, func() bool { return inj.Struck() > 0 }, soon, time.Millisecond)
			begun := time.Now()
			for time.Since(begun) < 2100*time.Millisecond { // the age of a lease is what this is about
				time.Sleep(10 * time.Millisecond)
			}
			inj.Remove()
			require.NoError(t, got(t, done, "commit"))
			hash := string(a.Ref(key(name)))[17:]
			leases := map[string]map[int64]bool{} // of the outcome, by key
			moved := func() bool {
				for _, l := range leases {
					if len(l) < 2 {
						return false
					}
				}
				return len(leases) > parts
			}
			for resp := range seen {
				for _, ev := range resp.Events {
					k := string(ev.Kv.Key)
					if ev.Type != clientv3.EventTypePut || !strings.Contains(k, hash) || strings.HasSuffix(k, "/claim") || strings.Contains(string(ev.Kv.Value), "working") {
						continue
					}
					if leases[k] == nil {
						leases[k] = map[int64]bool{}
					}
					leases[k][ev.Kv.Lease] = true
				}
				if moved() {
					break
				}
			}
			require.True(t, moved(), "%v", leases)
			require.Len(t, replayed(t, a, key(name)).Value, parts<<20+1)
		})
	}
}
