package exit

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// Each kind of error has the code by which a script decides what to do.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		code int
	}{
		"none":                        {nil, OK},
		"any":                         {errors.New("boom"), Failed},
		"usage":                       {usageError{errors.New("no")}, Usage},
		"bad argument":                {fmt.Errorf("x: %w", concurrency.ErrInvalid), Usage},
		"full":                        {&concurrency.FullError{Name: "x"}, NotAcquired},
		"held":                        {&concurrency.HeldError{}, NotAcquired},
		"mismatch":                    {&concurrency.LimitMismatchError{}, Usage},
		"lost":                        {&concurrency.LostError{Cause: concurrency.ErrEvicted}, Lost},
		"no answer":                   {&concurrency.UnavailableError{}, Unreachable},
		"no answer and ctx":           {errors.Join(context.DeadlineExceeded, &concurrency.UnavailableError{}), Unreachable},
		"deadline":                    {context.DeadlineExceeded, Unreachable},
		"unavailable":                 {status.Error(codes.Unavailable, "no"), Unreachable},
		"no leader":                   {rpctypes.ErrNoLeader, Unreachable},
		"denied":                      {rpctypes.ErrPermissionDenied, Denied},
		"denied, wrapped":             {fmt.Errorf("grant a lease: %w", rpctypes.ErrGRPCPermissionDenied), Denied},
		"wrong password":              {rpctypes.ErrAuthFailed, Denied},
		"no user":                     {rpctypes.ErrUserEmpty, Denied},
		"no space":                    {rpctypes.ErrNoSpace, Failed},
		"members that differ":         {rpctypes.ErrCorrupt, Failed},
		"no limit":                    {concurrency.ErrNoLimit, Failed},
		"no request":                  {concurrency.ErrNotHeld, Failed},
		"no job":                      {schedlock.ErrUnknownJob, Failed},
		"no record":                   {idempotency.ErrNotFound, Failed},
		"own code":                    {&Error{7, nil}, 7},
		"own code in spite of others": {errors.Join(&Error{NotAcquired, errors.New("x")}, context.DeadlineExceeded), NotAcquired},
		"a signal":                    {errors.Join(Interrupted{syscall.SIGTERM}, context.Canceled), 143},
	} {
		code, text := Explain(c.err)
		require.Equal(t, c.code, code, name)
		if c.code == OK || c.code == 7 {
			require.Empty(t, text, name)
		}
	}
}

// What to do after a refusal depends on why it was refused: without a user there is none to check.
func TestDeniedAdvice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"no user":           {rpctypes.ErrUserEmpty, "this call has none: give --user and --password"},
		"wrong password":    {rpctypes.ErrAuthFailed, "Check --user and --password"},
		"role":              {rpctypes.ErrPermissionDenied, "The role of the user (--user, or the common name of --cert) must cover"},
		"role, from gRPC":   {fmt.Errorf("x: %w", rpctypes.ErrGRPCPermissionDenied), "The role of the user"},
		"token":             {rpctypes.ErrInvalidAuthToken, "call again"},
		"a proxy's refusal": {status.Error(codes.PermissionDenied, "RBAC: access denied"), "it may be a proxy"},
		"a proxy's login":   {status.Error(codes.Unauthenticated, "no"), "it may be a proxy"},
	} {
		code, text := Explain(c.err)
		require.Equal(t, Denied, code, name)
		require.Contains(t, text, c.want, name)
		if name == "no user" || name == "a proxy's refusal" {
			require.NotContains(t, text, "The role", name)
		}
	}
}

// A540: what serves until a signal ends it failed, and exited with 0, if a signal came while it closed its session. Of an error that
// has come after the signal it exits with 0.
func TestErrorBeforeASignal(t *testing.T) {
	t.Parallel()
	failed := &Error{Usage, errors.New("listen: address already in use")}
	ctx, signal := context.WithCancelCause(t.Context())
	before := fmt.Errorf("serve: %w", Early(ctx, failed))
	require.NoError(t, Early(ctx, nil))
	require.ErrorIs(t, Served(ctx, failed), failed, "no signal has come")
	signal(Interrupted{syscall.SIGTERM})
	require.ErrorIs(t, Served(ctx, before), failed)
	require.Equal(t, Usage, CodeOf(before))
	require.EqualError(t, before, "serve: listen: address already in use")
	require.NoError(t, Served(ctx, failed))
	require.NoError(t, Served(ctx, Early(ctx, failed)))
	require.NoError(t, Served(ctx, nil))
}
