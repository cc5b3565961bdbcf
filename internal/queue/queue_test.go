package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/hook"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/queue"
	"github.com/etcdkit/etcdkit/internal/rank"
	"github.com/etcdkit/etcdkit/internal/record"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// side is a session with a queue of the limit 2.
type side struct {
	sess  *engine.Session
	queue *queue.Queue
	waits chan *queue.Full // what is before each request that begins to wait
}

func (s *side) Landed()                  {}
func (s *side) Waits(before *queue.Full) { s.waits <- before }
func (s *side) Follows(context.Context, *queue.Ticket, time.Time, *mirror.Mirror) (stop func()) {
	return func() {}
}
func (s *side) Sleeps(context.Context, *queue.Ticket, time.Time) {}

func newSide(t *testing.T, ctx context.Context, c *embedtest.Cluster, prefix, owner string) *side {
	space, err := keyspace.New(prefix, "test")
	require.NoError(t, err)
	log := zap.NewNop()
	sess, err := engine.New(ctx, c.Client(), space, engine.Options{
		TTL: 10 * time.Second, Margin: 2 * time.Second, Owner: owner, MaxPermits: 100, ReleaseTimeout: time.Second,
		Log: log, Hooks: hook.New(nil, "test", log),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = sess.Close(ended)
	})
	q := queue.New(queue.Options{
		Session: sess, Keys: space.Queue(keyspace.Semaphore, "x"), Name: "x", Horizon: rank.StoredLimit, ReportEvery: time.Minute,
	})
	_, err = q.Limit.Init(ctx, 2, record.Rate{})
	require.NoError(t, err)
	return &side{sess, q, make(chan *queue.Full, 1)}
}

// ask makes one call.
func (s *side) ask(ctx context.Context, r queue.Request) (*queue.Ticket, error) {
	e, err := s.sess.Live(ctx)
	if err != nil {
		return nil, err
	}
	call := &queue.Call{Queue: s.queue, Request: r, Terms: queue.Terms{Limit: 2}, Caller: s, Ctx: ctx, Begun: time.Now()}
	_, last, err := call.Admit(ctx, e)
	return last, err
}

// A call is admitted, or it returns why not as a value.
func TestWhyACallIsRefused(t *testing.T) {
	t.Parallel()
	c, ctx := embedtest.Shared(t), testkit.Context(t)
	prefix := c.Prefix(t)
	a, b := newSide(t, ctx, c, prefix, "a"), newSide(t, ctx, c, prefix, "b")
	held, err := a.ask(ctx, queue.Request{Weight: 2, ID: "job"})
	require.NoError(t, err)

	var full *queue.Full
	_, err = b.ask(ctx, queue.Request{Weight: 1, Bounded: true})
	require.ErrorAs(t, err, &full)
	require.EqualValues(t, []int64{2, 2, 0}, []int64{full.Limit, full.Used, int64(full.Waiting)})
	require.False(t, full.Unseen)

	var used *queue.InUse
	_, err = b.ask(ctx, queue.Request{Weight: 1, ID: "job"})
	require.ErrorAs(t, err, &used)
	require.Equal(t, held.Token, used.Request.Create)

	var heavy *queue.TooHeavy
	_, err = b.ask(ctx, queue.Request{Weight: 3})
	require.ErrorAs(t, err, &heavy)
	require.Equal(t, &queue.TooHeavy{Weight: 3, Most: 2}, heavy)

	waiting, waited := context.WithCancelCause(ctx)
	defer waited(nil)
	go func() {
		<-b.waits
		waited(queue.ErrWaited)
	}()
	var end *queue.WaitEnd
	_, err = b.ask(waiting, queue.Request{Weight: 1})
	require.ErrorAs(t, err, &end)
	require.EqualValues(t, 2, end.Full.Limit)
}

// A request that waits is shown after those that hold, and ends with the notice of another session.
func TestRequestOfAnotherSessionIsEnded(t *testing.T) {
	t.Parallel()
	c, ctx := embedtest.Shared(t), testkit.Context(t)
	prefix := c.Prefix(t)
	a, b := newSide(t, ctx, c, prefix, "a"), newSide(t, ctx, c, prefix, "b")
	held, err := a.ask(ctx, queue.Request{Weight: 2})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := b.ask(ctx, queue.Request{Weight: 1})
		ended <- err
	}()
	testkit.Got(t, b.waits, "the request waits")

	st, err := a.queue.State(ctx)
	require.NoError(t, err)
	require.Len(t, st.Holders, 1)
	require.Len(t, st.Waiters, 1)
	require.Equal(t, held.Token, st.Holders[0].Create)
	owners := queue.Owners{Queue: a.queue}
	require.ErrorIs(t, owners.EndToken(ctx, st.Waiters[0].Create+1, record.Notice{}), queue.ErrNotHeld)
	n := record.Notice{Cause: record.CauseEvicted, Reason: "stuck", By: "a"}
	require.NoError(t, owners.EndToken(ctx, st.Waiters[0].Create, n))
	var noticed *queue.Noticed
	require.ErrorAs(t, testkit.Got(t, ended, "the call returns"), &noticed)
	require.Equal(t, "stuck", noticed.Notice.Reason)
	require.Equal(t, st.Waiters[0].Create, noticed.Token)
}
