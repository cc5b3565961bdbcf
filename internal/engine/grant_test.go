package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/internal/lease"
)

// granting is an etcd with leases, whose first grant is applied and not answered.
type granting struct {
	lease.API
	ends  map[int64]time.Time
	times map[int64]int64
	sent  int64 // to renew
	asked bool
}

func (g *granting) Grant(_ context.Context, id, seconds int64) (int64, error) {
	if g.left(id) > 0 {
		return 0, rpctypes.ErrLeaseExist
	}
	g.times[id], g.ends[id] = seconds, time.Now().Add(time.Duration(seconds)*time.Second)
	if !g.asked {
		g.asked = true
		return 0, context.DeadlineExceeded
	}
	return seconds, nil
}

func (g *granting) Granted(_ context.Context, id int64) (int64, error) {
	if g.left(id) <= 0 {
		return 0, nil
	}
	return g.times[id], nil
}

func (g *granting) Renewals(context.Context) (lease.Stream, error) { return g, nil }

func (g *granting) Send(id int64) error {
	g.sent = id
	return nil
}

func (g *granting) Recv() (id, seconds int64, err error) {
	if g.left(g.sent) <= 0 {
		return g.sent, 0, nil
	}
	g.ends[g.sent] = time.Now().Add(time.Duration(g.times[g.sent]) * time.Second)
	return g.sent, g.times[g.sent], nil
}

func (g *granting) left(id int64) time.Duration { return time.Until(g.ends[id]) }

// A376: a lease whose grant was not answered lasts for its time from the request that was answered, however late that is.
func TestLateGrantLasts(t *testing.T) {
	t.Parallel()
	const ttl = time.Minute
	for _, away := range []time.Duration{0, time.Second, 55 * time.Second, ttl, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			etcd := &granting{ends: map[int64]time.Time{}, times: map[int64]int64{}}
			g := NewGrant(&Session{lease: etcd})
			_, err := g.Ask(t.Context(), ttl)
			require.Error(t, err)
			time.Sleep(away)
			granted, err := g.Ask(t.Context(), ttl)
			require.NoError(t, err)
			require.Equal(t, ttl, granted)
			require.Equal(t, ttl, etcd.left(int64(g.ID)), "after %v", away)
		})
	}
}
