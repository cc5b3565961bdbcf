package cli

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
		"none":                        {nil, exitOK},
		"any":                         {errors.New("boom"), exitFailed},
		"usage":                       {usageError{errors.New("no")}, exitUsage},
		"bad argument":                {fmt.Errorf("x: %w", concurrency.ErrInvalid), exitUsage},
		"full":                        {&concurrency.FullError{Name: "x"}, exitNotAcquired},
		"held":                        {&concurrency.HeldError{}, exitNotAcquired},
		"mismatch":                    {&concurrency.LimitMismatchError{}, exitUsage},
		"lost":                        {&concurrency.LostError{Cause: concurrency.ErrEvicted}, exitLost},
		"no answer":                   {&concurrency.UnavailableError{}, exitUnreachable},
		"no answer and ctx":           {errors.Join(context.DeadlineExceeded, &concurrency.UnavailableError{}), exitUnreachable},
		"deadline":                    {context.DeadlineExceeded, exitUnreachable},
		"unavailable":                 {status.Error(codes.Unavailable, "no"), exitUnreachable},
		"no leader":                   {rpctypes.ErrNoLeader, exitUnreachable},
		"denied":                      {rpctypes.ErrPermissionDenied, exitDenied},
		"denied, wrapped":             {fmt.Errorf("grant a lease: %w", rpctypes.ErrGRPCPermissionDenied), exitDenied},
		"wrong password":              {rpctypes.ErrAuthFailed, exitDenied},
		"no user":                     {rpctypes.ErrUserEmpty, exitDenied},
		"no space":                    {rpctypes.ErrNoSpace, exitFailed},
		"no limit":                    {concurrency.ErrNoLimit, exitFailed},
		"no request":                  {concurrency.ErrNotHeld, exitFailed},
		"no job":                      {schedlock.ErrUnknownJob, exitFailed},
		"no record":                   {idempotency.ErrNotFound, exitFailed},
		"own code":                    {&exitError{7, nil}, 7},
		"own code in spite of others": {errors.Join(&exitError{exitNotAcquired, errors.New("x")}, context.DeadlineExceeded), exitNotAcquired},
		"a signal":                    {errors.Join(interrupted{syscall.SIGTERM}, context.Canceled), 143},
	} {
		code, text := explain(c.err)
		require.Equal(t, c.code, code, name)
		if c.code == exitOK || c.code == 7 {
			require.Empty(t, text, name)
		}
	}
}
