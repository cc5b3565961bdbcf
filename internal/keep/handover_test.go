package keep

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/internal/queue"
)

// slowToVacate is a permit whose release lasts until a test lets it end.
type slowToVacate struct {
	Permit
	end chan struct{}
}

func (p slowToVacate) Vacate(error) bool { <-p.end; return false }

// A502: a try of the only process waits for a permit that is being delivered to a call that has left: until then its key
// is neither idle nor being removed, and etcd would refuse the try because of it.
func TestTryWaitsForAPermitThatIsDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := New(Options{Handover: 1, Session: new(engine.Session), Queue: &queue.Queue{Reader: queue.Reader{Limit: new(limit.Store)}}, Ended: func() {}})
		p := slowToVacate{end: make(chan struct{})}
		k.Fetch = func(context.Context, func(*queue.Full)) (*Holder, error) {
			return &Holder{Permit: p, key: &Key{keeper: k}}, nil
		}
		f := &fetch{ended: make(chan struct{})}
		f.ctx, f.cancel = context.WithCancelCause(t.Context())
		k.local.fetches = []*fetch{f}
		go k.runFetch(f)
		synctest.Wait()
		var waited bool
		go func() { waited = k.WithdrawSurplus(t.Context()) }()
		synctest.Wait()
		require.False(t, waited, "it waits")
		require.NoError(t, f.ctx.Err(), "the permit stays")
		gone, leave := context.WithCancelCause(t.Context())
		leave(errors.New("the call has ended"))
		require.True(t, k.WithdrawSurplus(gone))
		close(p.end)
		synctest.Wait()
		require.True(t, waited)
		require.False(t, k.WithdrawSurplus(t.Context()), "nothing is left")
	})
}
