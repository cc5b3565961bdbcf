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

// A602: the error of one fetch ends no call while another fetch is under way, or is being delivered: that one is for the first
// call. The last one that fails ends it.
func TestFailedFetchBesideAnother(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(l *localQueue) *[]*fetch{
		"under way": func(l *localQueue) *[]*fetch { return &l.fetches },
		"delivered": func(l *localQueue) *[]*fetch { return &l.grants },
	} {
		synctest.Test(t, func(t *testing.T) {
			k := New(Options{Handover: 1, Session: new(engine.Session), Queue: &queue.Queue{Reader: queue.Reader{Limit: new(limit.Store)}}, Ended: func() {}})
			k.Fetch = func(context.Context, func(*queue.Full)) (*Holder, error) { return nil, engine.ErrTooMany }
			l := &k.local
			w := &localCall{got: make(chan error, 1)}
			w.place = l.waiting.PushBack(w)
			l.length.Add(1)
			run := func(others ...*fetch) {
				f := &fetch{ended: make(chan struct{})}
				f.ctx, f.cancel = context.WithCancelCause(t.Context())
				l.fetches = append(l.fetches, f)
				*of(l) = append(*of(l), others...)
				k.runFetch(f)
			}
			run(&fetch{})
			require.Empty(t, w.got, name)
			require.Equal(t, 1, k.Waiting(), name)
			*of(l) = nil
			run()
			require.ErrorIs(t, <-w.got, engine.ErrTooMany, name)
			require.Zero(t, k.Waiting(), name)
		})
	}
}

// A650: when each fetch fails, each call ends by that, although new calls have had other fetches under way all the time.
func TestLastingErrorReachesEachCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := New(Options{Handover: 1, Session: new(engine.Session), Queue: &queue.Queue{Reader: queue.Reader{Limit: new(limit.Store)}}, Ended: func() {}})
		k.Fetch = func(context.Context, func(*queue.Full)) (*Holder, error) { return nil, engine.ErrTooMany }
		l := &k.local
		start := func() *fetch {
			f := &fetch{ended: make(chan struct{})}
			f.ctx, f.cancel = context.WithCancelCause(t.Context())
			l.fetches = append(l.fetches, f)
			return f
		}
		oldest := start()
		for i := range 8 {
			w := &localCall{got: make(chan error, 1)}
			w.place = l.waiting.PushBack(w)
			l.length.Add(1)
			next := start()
			k.runFetch(oldest)
			oldest = next
			require.Equal(t, (i+1)%2, k.Waiting(), "a call ends for each fetch that fails, one later at most")
		}
	})
}
