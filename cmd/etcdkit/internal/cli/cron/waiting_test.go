package cron

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/schedlock"
)

// A445: how long a call waits for etcd, if it is not asked to wait otherwise.
func TestPatience(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		every time.Duration
		cron  string
		want  time.Duration
	}{
		"each minute":   {0, "* * * * *", 30 * time.Second},
		"each night":    {0, "30 1 * * *", time.Hour},
		"an hour apart": {time.Hour, "", 15 * time.Minute},
		"a day apart":   {24 * time.Hour, "", time.Hour},
	} {
		o := occasion{now: Berlin(t, "2026-03-01 01:30:02"), every: c.every}
		if c.cron != "" {
			o.cron = InBerlin(t, c.cron)
		}
		require.Equal(t, c.want, o.patience(), name)
	}
}

// A408: what an operator mends is waited for, and nothing else that etcd refuses.
func TestMendable(t *testing.T) {
	t.Parallel()
	for _, err := range []error{rpctypes.ErrNoSpace, rpctypes.ErrCorrupt, rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken, rpctypes.ErrUserEmpty} {
		require.True(t, mendable(fmt.Errorf("x: %w", err)), err)
	}
	for _, err := range []error{nil, errors.New("x"), rpctypes.ErrRequestTooLarge, schedlock.ErrInvalid, schedlock.ErrSettings} {
		require.False(t, mendable(err), err)
	}
}
