package concurrency_test

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// soon bounds what should happen at once.
const soon = testkit.Soon

var (
	closed = testkit.Closed
	ctxT   = testkit.Context
	quick  = testkit.Quick
	brisk  = testkit.Brisk
)

// tick is the time between two looks at what is not signalled.
const tick = time.Millisecond

// fixture is one etcd and a prefix of the test's own.
type fixture struct{ testkit.Fixture }

// shared uses the etcd that all tests of this package share.
func shared(t testing.TB) fixture { return fixture{testkit.Shared(t)} }

// own starts an etcd of the test's own, for tests that break it, or count what is
// requested of it.
func own(t testing.TB, members int) fixture { return fixture{testkit.Own(t, members)} }

// idle are the options of a session that does nothing by itself during a test.
func idle() *concurrency.SessionOptions {
	return &concurrency.SessionOptions{TTL: 300 * time.Second}
}

func sem(t testing.TB, s *concurrency.Session, name string, limit int) *concurrency.Semaphore {
	t.Helper()
	sem, err := concurrency.NewSemaphore(s, name, limit, nil)
	require.NoError(t, err)
	return sem
}

func mutex(t testing.TB, s *concurrency.Session, name string) *concurrency.Mutex {
	t.Helper()
	mu, err := concurrency.NewMutex(s, name)
	require.NoError(t, err)
	return mu
}

// streams waits until a client of one session has the two streams of a session, and no
// more: one of renewals may be beside them for as long as an answer is late.
func (f fixture) streams(c *embedtest.Client) {
	f.T.Helper()
	want := map[string]int{"Watch": 1, "LeaseKeepAlive": 1}
	require.Eventually(f.T, func() bool { return maps.Equal(c.OpenStreams(), want) }, soon, tick, "%v", want)
}

// sees returns the view by which waiting callers of this process are admitted, as
// soon as it has seen all that is in etcd now.
func (f fixture) sees(ctx context.Context, sm *concurrency.Semaphore) concurrency.Status {
	f.T.Helper()
	return f.seesBy(ctx, sm, strings.TrimSuffix(f.Keys("/limit")[0], "limit")+"seen")
}

// seesKey is sees for the key of a limiter.
func (f fixture) seesKey(ctx context.Context, lim *concurrency.KeyedLimiter, key string) concurrency.Status {
	f.T.Helper()
	before, _, _ := strings.Cut(f.Keys("/key/" + key + "/")[0], "/key/")
	return f.seesBy(ctx, lim.Key(key), before+"/key/"+key+"/seen")
}

// seesBy is sees by a key in the range of the queue, which is foreign there and does not count.
func (f fixture) seesBy(ctx context.Context, sm *concurrency.Semaphore, mark string) concurrency.Status {
	f.T.Helper()
	var put *clientv3.PutResponse
	for st, err := range sm.Watch(ctx) {
		require.NoError(f.T, err)
		if put == nil { // the first state is no view's but read
			put, err = f.Client().Put(ctx, mark, "")
			require.NoError(f.T, err)
			defer func() {
				_, err := f.Client().Delete(ctx, mark)
				require.NoError(f.T, err)
			}()
		} else if st.Revision >= put.Header.Revision {
			return st
		}
	}
	panic("unreachable")
}

func assertNoError(t *testing.T, err error) bool {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// events are what a session's hooks report, as channels.
type events struct {
	lost, renewed chan clientv3.LeaseID
	permit        chan *concurrency.LostError
}

// traced returns options whose hooks report on channels.
func traced(o *concurrency.SessionOptions) (*concurrency.SessionOptions, events) {
	if o == nil {
		o = &concurrency.SessionOptions{}
	}
	e := events{make(chan clientv3.LeaseID, 100), make(chan clientv3.LeaseID, 100), make(chan *concurrency.LostError, 100)}
	trace := e.sessions()
	trace.Lost = func(err *concurrency.LostError) { e.permit <- err }
	o.Hooks = trace.Hooks()
	return o, e
}

// sessions reports what becomes of a session alone.
func (e events) sessions() testkit.Trace {
	return testkit.Trace{
		SessionLost:    func(id clientv3.LeaseID, _ error) { e.lost <- id },
		SessionRenewed: func(id clientv3.LeaseID) { e.renewed <- id },
	}
}

func lock(t testing.TB, s *concurrency.Session, name string) *concurrency.Permit {
	t.Helper()
	p, err := mutex(t, s, name).Lock(ctxT(t))
	require.NoError(t, err)
	return p
}

// lostBy asserts that a permit has ended, everywhere, by that cause.
func lostBy(t testing.TB, p *concurrency.Permit, cause error) {
	t.Helper()
	closed(t, p.Context().Done(), "the permit's context ends")
	require.ErrorIs(t, p.Err(), cause)
	require.ErrorIs(t, p.Err(), concurrency.ErrLost)
	require.Equal(t, p.Err(), context.Cause(p.Context()))
	require.ErrorIs(t, p.Release(ctxT(t)), concurrency.ErrLost)
}

// gauge measures how many are inside at once, in this process and apart from
// etcd.
type gauge struct{ now, peak atomic.Int64 }

func (g *gauge) enter(n int64) {
	now := g.now.Add(n)
	for p := g.peak.Load(); now > p && !g.peak.CompareAndSwap(p, now); p = g.peak.Load() {
	}
}
func (g *gauge) leave(n int64) { g.now.Add(-n) }

// answer is what an Acquire in a goroutine returns.
type answer struct {
	p   *concurrency.Permit
	err error
}

// ask calls Acquire in a goroutine and returns when its request is in etcd, or
// the answer is there.
func ask(t testing.TB, ctx context.Context, sm *concurrency.Semaphore, opts ...concurrency.AcquireOption) <-chan answer {
	t.Helper()
	note := rand.Text()
	ch := ask2(ctx, sm, append(slices.Clone(opts), concurrency.Note(note))...)
	require.Eventually(t, func() bool {
		now, err := sm.Status(ctx)
		mine := func(r concurrency.Request) bool { return r.Note == note }
		return len(ch) > 0 || err == nil && (slices.ContainsFunc(now.Holders, mine) || slices.ContainsFunc(now.Waiters, mine))
	}, soon, 5*time.Millisecond, "the request does not appear")
	return ch
}

func granted(t testing.TB, ch <-chan answer, what string) *concurrency.Permit {
	t.Helper()
	a := got(t, ch, what)
	require.NoError(t, a.err, what)
	return a.p
}

func acquire(t testing.TB, ctx context.Context, sm *concurrency.Semaphore, opts ...concurrency.AcquireOption) *concurrency.Permit {
	t.Helper()
	p, err := sm.Acquire(ctx, opts...)
	require.NoError(t, err)
	return p
}

func waiting(t testing.TB, ch <-chan answer, why string) {
	t.Helper()
	select {
	case a := <-ch:
		require.FailNow(t, "it did not wait: "+why, "%v", a.err)
	default:
	}
}

func ask2(ctx context.Context, sm *concurrency.Semaphore, opts ...concurrency.AcquireOption) <-chan answer {
	ch := make(chan answer, 1)
	go func() {
		p, err := sm.Acquire(ctx, opts...)
		ch <- answer{p, err}
	}()
	return ch
}

// refused returns why a call that waits for a moment gets no permit, once etcd has answered it in that moment: on a busy
// machine the test's process stands still for as long.
func refused(get func() (*concurrency.Permit, error)) error {
	_, err := get()
	for errors.Is(err, concurrency.ErrUnavailable) {
		_, err = get()
	}
	return err
}

func got[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	return testkit.Got(t, ch, what)
}
