package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Time in these tests is that of a synctest bubble: exact, and it passes only
// when every goroutine waits. A bubble also fails if a goroutine is left.

var errUnavailable = status.Error(codes.Unavailable, "test: no answer")

// api is a scripted etcd. What is nil succeeds.
type api struct {
	grant   func(id, seconds int64) (int64, error)
	granted func(id int64) (int64, error)
	revoke  func(id int64) error
	open    func(ctx context.Context) error
	streams chan *scripted

	reconnects atomic.Int32

	mu      sync.Mutex
	revoked []int64
}

func (a *api) Grant(_ context.Context, id, seconds int64) (int64, error) {
	if a.grant == nil {
		return seconds, nil
	}
	return a.grant(id, seconds)
}

func (a *api) Granted(_ context.Context, id int64) (int64, error) { return a.granted(id) }

func (a *api) Revoke(_ context.Context, id int64) error {
	a.mu.Lock()
	a.revoked = append(a.revoked, id)
	a.mu.Unlock()
	if a.revoke == nil {
		return nil
	}
	return a.revoke(id)
}

func (a *api) Renewals(ctx context.Context) (Stream, error) {
	if a.open != nil {
		if err := a.open(ctx); err != nil {
			return nil, err
		}
	}
	s := &scripted{ctx: ctx, sent: make(chan sending, 100), answers: make(chan answer, 100)}
	a.streams <- s
	return s, nil
}

func (a *api) Reconnect() { a.reconnects.Add(1) }

func newAPI() *api { return &api{streams: make(chan *scripted, 100)} }

// scripted is one stream of renewals.
type scripted struct {
	ctx     context.Context
	hang    atomic.Bool // in Send
	sent    chan sending
	answers chan answer
}

func (s *scripted) Send(id int64) error {
	if s.hang.Load() {
		<-s.ctx.Done()
		return s.ctx.Err()
	}
	s.sent <- sending{id, time.Now()}
	return nil
}

func (s *scripted) Recv() (id, seconds int64, err error) {
	select {
	case a := <-s.answers:
		return a.id, a.seconds, a.err
	case <-s.ctx.Done():
		return 0, 0, status.FromContextError(s.ctx.Err()).Err()
	}
}

// answer answers the next renewal, after d.
func (s *scripted) answer(d time.Duration, seconds int64) sending {
	r := <-s.sent
	time.Sleep(d)
	s.answers <- answer{id: r.id, seconds: seconds}
	return r
}

type sending struct {
	id int64
	at time.Time
}

const (
	ttl    = 15 * time.Second
	margin = 3 * time.Second
)

func options(margin time.Duration) Options {
	return Options{TTL: ttl, Margin: margin, Log: zap.NewNop(), Later: func(fn func(context.Context)) { go fn(context.Background()) }}
}

func grant(t *testing.T, a *api) *Lease {
	t.Helper()
	l, err := Grant(t.Context(), a, options(margin))
	require.NoError(t, err)
	return l
}

var errTest = errors.New("the test is over")

func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	if name == "" {
		synctest.Test(t, f)
		return
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
