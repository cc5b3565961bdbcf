package commit

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/internal/members"
)

// F46, F47, F45, F20: what each error says about the write that got it. All that
// is not known to mean "not applied" is not answered.
func TestClasses(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want class
	}{
		{rpctypes.ErrGRPCEmptyKey, refused},
		{rpctypes.ErrGRPCTooManyOps, refused},
		{rpctypes.ErrGRPCDuplicateKey, refused},
		{rpctypes.ErrGRPCRequestTooLarge, refused},
		{rpctypes.ErrGRPCValueProvided, refused},
		{rpctypes.ErrGRPCLeaseProvided, refused},
		{rpctypes.ErrGRPCInvalidSortOption, refused},
		{rpctypes.ErrGRPCPermissionDenied, refused},
		{rpctypes.ErrGRPCUserEmpty, refused},
		{rpctypes.ErrGRPCAuthFailed, refused},
		{rpctypes.ErrGRPCInvalidAuthToken, refused}, // clientv3 has got a new one, many times

		{status.Error(codes.ResourceExhausted, "trying to send message larger than max (2 vs. 1)"), refused},

		{rpctypes.ErrGRPCRequestTooManyRequests, busy},
		{rpctypes.ErrGRPCNoLeader, busy},
		{rpctypes.ErrGRPCAuthOldRevision, busy},

		{rpctypes.ErrGRPCLeaseNotFound, orphaned},

		{rpctypes.ErrGRPCNoSpace, answered},
		{rpctypes.ErrGRPCCorrupt, answered},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max (2 vs. 1)"), answered},

		{rpctypes.ErrGRPCLeaderChanged, unanswered},
		{rpctypes.ErrGRPCStopped, unanswered},
		{rpctypes.ErrGRPCTimeout, unanswered},
		{rpctypes.ErrGRPCTimeoutDueToLeaderFail, unanswered},
		{rpctypes.ErrGRPCTimeoutDueToConnectionLost, unanswered},
		{rpctypes.ErrGRPCTimeoutWaitAppliedIndex, unanswered},
		{rpctypes.ErrGRPCUnhealthy, unanswered},
		{rpctypes.ErrGRPCCanceled, unanswered},
		{rpctypes.ErrGRPCDeadlineExceeded, unanswered},
		{rpctypes.ErrGRPCNotCapable, unanswered},
		{rpctypes.ErrGRPCNotLeader, unanswered},
		{rpctypes.ErrGRPCNotSupportedForLearner, unanswered},
		{rpctypes.ErrGRPCAuthNotEnabled, unanswered},
		{context.DeadlineExceeded, unanswered},
		{context.Canceled, unanswered},
		{errors.New("?"), unanswered},
		{status.Error(codes.Unavailable, "transport is closing"), unanswered},
		{&members.UnansweredError{}, unanswered},
		{status.Error(codes.Internal, "stream terminated"), unanswered},
		{status.Error(codes.Unknown, "raft: raft proposal dropped"), unanswered},
		{status.Error(codes.Canceled, "the client connection is closing"), unanswered},

		// Of any server that has no such method.
		{status.Error(codes.Unimplemented, "unknown service etcdserverpb.KV"), refused},

		// Not etcd's own words: a proxy may have said so after passing it on. InvalidArgument is its last word
		// all the same: the others depend on who asks, or where.
		{status.Error(codes.InvalidArgument, "?"), answered},
		{status.Error(codes.PermissionDenied, "?"), unanswered},
		{status.Error(codes.NotFound, "?"), unanswered},
		{status.Error(codes.Unauthenticated, "?"), unanswered},
	} {
		// As the server sends it, as clientv3 returns it, and wrapped.
		for _, err := range []error{tt.err, rpctypes.Error(tt.err), fmt.Errorf("txn: %w", rpctypes.Error(tt.err)), errors.Join(context.Canceled, rpctypes.Error(tt.err))} {
			require.Equal(t, tt.want, classify(err), "%v", err)
		}
		require.False(t, Transient(tt.err) && Denied(tt.err), "%v", tt.err)
		if tt.want == busy {
			require.True(t, Transient(tt.err), "%v", tt.err)
		}
		require.False(t, tt.want == refused && Transient(tt.err) && tt.err != rpctypes.ErrGRPCInvalidAuthToken, "%v", tt.err)
		if tt.want == orphaned || tt.want == answered {
			require.False(t, Transient(tt.err) || Denied(tt.err), "%v", tt.err)
		}
	}
	require.True(t, Denied(rpctypes.ErrGRPCPermissionDenied) && Denied(rpctypes.ErrGRPCAuthFailed) && Denied(rpctypes.ErrGRPCUserEmpty))
	require.True(t, NoLogin(rpctypes.ErrGRPCAuthFailed) && NoLogin(rpctypes.ErrGRPCUserEmpty))
	require.False(t, NoLogin(rpctypes.ErrGRPCPermissionDenied) || NoLogin(rpctypes.ErrGRPCInvalidAuthToken))
	require.False(t, Denied(rpctypes.ErrGRPCInvalidAuthToken), "a token that ran out is replaced")
	require.True(t, Transient(rpctypes.ErrGRPCInvalidAuthToken))
	for _, err := range []error{rpctypes.ErrGRPCNoSpace, rpctypes.ErrCorrupt, rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrUserEmpty} {
		require.True(t, Mendable(err) && Mendable(fmt.Errorf("claim: %w", rpctypes.Error(err))), err)
	}
	for _, err := range []error{nil, errors.New("?"), context.Canceled, rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCRequestTooLarge, rpctypes.ErrGRPCLeaseNotFound} {
		require.False(t, Mendable(err), err)
	}
	for _, err := range []error{context.DeadlineExceeded, context.Canceled, status.Error(codes.Unavailable, "?"), rpctypes.ErrGRPCNoLeader} {
		require.True(t, Away(err) && Away(fmt.Errorf("read: %w", err)), err)
	}
	for _, err := range []error{nil, errors.New("?"), rpctypes.ErrGRPCPermissionDenied, errors.Join(context.DeadlineExceeded, rpctypes.ErrPermissionDenied), rpctypes.ErrGRPCNoSpace} {
		require.False(t, Away(err), err)
	}
}
