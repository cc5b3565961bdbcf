package idemgrpc

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// TestReasons: each refusal has the reason and the code that the constants document.
func TestReasons(t *testing.T) {
	t.Parallel()
	for by, want := range map[middleware.Reason]struct {
		reason string
		code   codes.Code
	}{
		middleware.Missing:     {ReasonMissing, codes.InvalidArgument},
		middleware.Malformed:   {ReasonMalformed, codes.InvalidArgument},
		middleware.Body:        {ReasonPayload, codes.InvalidArgument},
		middleware.Scope:       {ReasonScope, codes.PermissionDenied},
		middleware.InProgress:  {ReasonInProgress, codes.Aborted},
		middleware.Conflict:    {ReasonConflict, codes.Aborted},
		middleware.Reused:      {ReasonReused, codes.FailedPrecondition},
		middleware.Unknown:     {ReasonUnknown, codes.FailedPrecondition},
		middleware.Failed:      {ReasonFailed, codes.FailedPrecondition},
		middleware.NotKept:     {ReasonNotKept, codes.FailedPrecondition},
		middleware.Stream:      {ReasonStream, codes.Unimplemented},
		middleware.Internal:    {ReasonInternal, codes.Internal},
		middleware.Unreadable:  {ReasonUnreadable, codes.Internal},
		middleware.ScopeFull:   {ReasonScopeFull, codes.ResourceExhausted},
		middleware.Unavailable: {ReasonUnavailable, codes.Unavailable},
		middleware.Full:        {ReasonFull, codes.Unavailable},
	} {
		st := status.Convert(refusalOf(middleware.Refusal{Reason: by, Ref: "r", Note: "order 17"}))
		require.Equal(t, want.code, st.Code(), by)
		require.Greater(t, len(st.Message()), len("idempotency: "), by)
		info, ok := st.Details()[0].(*errdetails.ErrorInfo)
		require.True(t, ok, by)
		require.Equal(t, want.reason, info.GetReason(), by)
		require.Equal(t, Domain, info.GetDomain(), by)
		require.Equal(t, map[string]string{MetadataRef: "r", MetadataNote: "order 17"}, info.GetMetadata(), by)
	}
}
