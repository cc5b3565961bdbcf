package idempotency_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// A383: the answer to an outcome that an operator has recorded is lost, and another operator has replaced that outcome
// before it is asked for again. The outcome that is there is on the lease of the first operator, whose session ends: it was
// deleted with the lease, which counted as unused, and the next call executed the request again.
func TestOutcomeInPlaceOfOneWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	f := shared(t)
	service, a, b := f.instance(nil, nil), f.instance(nil, nil), f.instance(nil, nil)
	ref := begin(t, service, key("1"), idempotency.OnLost(idempotency.Refuse)).Ref()
	service.crash(t, f)
	var other error
	lost := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.DropResponse, After: func() {
		var was idempotency.Record
		if was, _, other = b.Get(context.Background(), ref); other == nil {
			other = b.Resolve(context.Background(), ref, idempotency.HasFailed("no money"), idempotency.OnlyRevision(was.Revision))
		}
	}})
	err := a.Resolve(ctxT(t), ref, idempotency.WasDone(nil))
	require.NoError(t, other)
	require.Equal(t, 1, lost.Hits())
	require.ErrorIs(t, err, idempotency.ErrConflict)
	require.ErrorContains(t, err, "answer was lost")
	require.Equal(t, 1, idempotency.Outcomes(a.Store), "the lease counts as used")
	require.NoError(t, a.sess.Close(ctxT(t)))
	r, _, err := b.Get(ctxT(t), ref)
	require.NoError(t, err)
	require.Equal(t, idempotency.Failed, r.State)
	require.Equal(t, "no money", replayed(t, f.instance(nil, nil), key("1")).Failure)
}
