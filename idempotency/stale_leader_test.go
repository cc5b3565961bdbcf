package idempotency_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// leaderOfBefore has etcd say of each lease that it does not exist, as a leader does that was replaced before the grant
// and does not know it yet: only a renewal has it make sure. It returns how often it was asked.
func (i instance) leaderOfBefore() *atomic.Int64 {
	var asked atomic.Int64
	i.client.Inject(embedtest.Fault{Method: "LeaseTimeToLive", Match: func(_ string, msg any) bool {
		msg.(*etcdserverpb.LeaseTimeToLiveRequest).ID = 4711
		asked.Add(1)
		return false
	}})
	return &asked
}

// A200: a leader that was replaced, and does not know it yet, says that the lease of attempts in progress does not exist.
// They live on. That of an operator's request does not make the outcome expire early.
func TestLeaseThatAnOldLeaderDoesNotKnow(t *testing.T) {
	t.Parallel()
	t.Run("in progress", func(t *testing.T) {
		t.Parallel()
		f := shared(t)
		a := f.instance(brisk(), nil)
		asked := a.leaderOfBefore()
		at := begin(t, a, key("1"))
		require.Eventually(t, func() bool { return asked.Load() >= 3 }, soon, 5*time.Millisecond)
		require.NoError(t, at.Err())
		require.NoError(t, at.Commit(ctxT(t), []byte("a")))
	})
	t.Run("resolved", func(t *testing.T) {
		t.Parallel()
		const days = 10 * 24 * time.Hour
		f := own(t)
		service, operator := f.instance(nil, &idempotency.Options{Retain: days, RetainUnknown: 2 * days}), f.instance(nil, nil)
		begin(t, service, key("1"), idempotency.OnLost(idempotency.Refuse))
		service.crash(t, f)
		asked := operator.leaderOfBefore()
		require.NoError(t, operator.Resolve(ctxT(t), operator.Ref(key("1")), idempotency.WasDone([]byte("1"))))
		require.Positive(t, asked.Load())
		require.GreaterOrEqual(t, f.keptFor(time.Now(), "/record/", 1), 2*days)
	})
}
