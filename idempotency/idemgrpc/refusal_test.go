package idemgrpc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// TestReasonOf: each refusal that all transports have has the reason of its name, with a text.
func TestReasonOf(t *testing.T) {
	t.Parallel()
	for by, want := range map[middleware.Reason]string{
		middleware.InProgress:  ReasonInProgress,
		middleware.Conflict:    ReasonConflict,
		middleware.Reused:      ReasonReused,
		middleware.Unknown:     ReasonUnknown,
		middleware.Failed:      ReasonFailed,
		middleware.NotKept:     ReasonNotKept,
		middleware.Internal:    ReasonInternal,
		middleware.Unreadable:  ReasonUnreadable,
		middleware.ScopeFull:   ReasonScopeFull,
		middleware.Unavailable: ReasonUnavailable,
		middleware.Full:        ReasonFull,
	} {
		require.Equal(t, want, reasonOf(by))
		require.NotEmpty(t, answers[want].text)
	}
}
