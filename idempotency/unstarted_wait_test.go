package idempotency_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// Wait also bounds the wait for a claim of this process that is being removed.
func TestWaitForAClaimThatIsTakenBack(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, &idempotency.Options{OnLost: idempotency.Refuse})
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isClaim, Do: embedtest.HoldResponse, After: func() {
		if err := f.ExpireLease(ctxT(t), a.sess.Lease()); err != nil {
			t.Error(err)
		}
	}})
	short, cancel := context.WithCancel(ctxT(t))
	done := make(chan error, 1)
	go func() {
		_, _, err := a.Begin(short, key("1"), "payload")
		done <- err
	}()
	require.NoError(t, inj.WaitHit(ctxT(t)))
	// What takes it back does not arrive.
	held := a.client.Inject(embedtest.Fault{Method: "Txn", Times: -1, Do: embedtest.FailWith, Match: func(_ string, msg any) bool {
		r, ok := msg.(*etcdserverpb.TxnRequest)
		return ok && len(r.Success) > 0 && (strings.Contains(string(r.Success[0].GetRequestDeleteRange().GetKey()), "/record/"))
	}})
	cancel()
	require.ErrorIs(t, got(t, done, "the call returns"), context.Canceled)
	require.Eventually(t, func() bool { return held.Hits() > 0 }, soon, 5*time.Millisecond)
	bound, cancel2 := context.WithTimeout(ctxT(t), soon)
	defer cancel2()
	_, _, err := a.Begin(bound, key("1"), "payload", idempotency.Wait(200*time.Millisecond))
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	held.Remove()
}
