package schedlock_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A270: RequestRun does not get etcd's answer, and the job is resumed meanwhile. If it returns nil, the run is requested, and is
// started once.
func TestRequestRunBesideAResume(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]embedtest.Action{"the request is lost": embedtest.FailWith, "the answer is lost": embedtest.DropResponse} {
		for _, serves := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", and a process has the job"}[serves], func(t *testing.T) {
				t.Parallel()
				f := shared(t)
				ctx := ctxT(t)
				f.retired(1)
				operator, other := f.instance(nil, nil), f.instance(nil, nil)
				var starts atomic.Int64
				var done calls
				if serves {
					_, done = f.serving("job", &starts, closedCh())
				}
				resume := func() {
					if serves && do == embedtest.DropResponse {
						done.outcome(t, schedlock.Ran)
					}
					require.NoError(t, other.Pause(ctx, "job", "")) // otherwise Resume changes nothing
					require.NoError(t, other.Resume(ctx, "job"))
				}
				fault := embedtest.Fault{Method: "Txn", Do: do, After: resume, Match: func(_ string, msg any) bool {
					txn, ok := msg.(*etcdserverpb.TxnRequest)
					return ok && slices.ContainsFunc(txn.Success, func(op *etcdserverpb.RequestOp) bool {
						return strings.HasSuffix(string(op.GetRequestPut().GetKey()), "/run-request")
					})
				}}
				if do == embedtest.FailWith {
					fault.Before, fault.After = resume, nil
				}
				lost := operator.client.Inject(fault)
				id, err := operator.RequestRun(ctx, "job", "")
				require.NoError(t, err)
				require.Equal(t, 1, lost.Hits())
				if !serves {
					require.Len(t, f.Keys("/run-request"), 1)
					return
				}
				if do == embedtest.FailWith {
					done.outcome(t, schedlock.Ran)
				}
				operator.requested(t, id)
				require.Empty(t, f.Keys("/run-request"))
				require.EqualValues(t, 1, starts.Load())
			})
		}
	}
}
