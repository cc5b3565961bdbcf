package integration

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// soon bounds what should happen at once; it is far above what it takes.
const soon = time.Minute

var ctxT = testkit.Context

// instance is one process of the fleet, as etcd sees it.
type instance struct {
	*schedlock.Locker
	sess   *concurrency.Session
	client *embedtest.Client
	calls  *calls
}

// calls collects the results of an instance's calls.
type calls struct {
	mu  sync.Mutex
	all []schedlock.Result
}

func (x *calls) done(res schedlock.Result, _ error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = append(x.all, res)
}

func (x *calls) results() []schedlock.Result {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]schedlock.Result(nil), x.all...)
}

// fleet starts instances on one prefix.
func fleet(t testing.TB, n int, so concurrency.SessionOptions, lo schedlock.Options) (all []instance) {
	t.Helper()
	etcd := embedtest.Shared(t)
	so.Prefix = etcd.Prefix(t)
	for range n {
		c := etcd.NewClient(t, nil)
		s, err := concurrency.NewSession(ctxT(t), c.Client, "test", &so)
		require.NoError(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = s.Close(ctx)
		})
		x := &calls{}
		lo := lo
		lo.Done = x.done
		l, err := schedlock.New(s, &lo)
		require.NoError(t, err)
		all = append(all, instance{l, s, c, x})
	}
	return all
}

// starts counts the starts of each tick, by all instances of a test.
type starts struct {
	mu    sync.Mutex
	ticks map[time.Time]int
	more  chan struct{}
}

func newStarts() *starts { return &starts{ticks: map[time.Time]int{}, more: make(chan struct{}, 1000)} }

func (s *starts) add(tick time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticks[tick.UTC()]++
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// wait returns when there were n starts.
func (s *starts) wait(t testing.TB, n int) {
	t.Helper()
	late := time.After(soon)
	for {
		if s.sum() >= n {
			return
		}
		select {
		case <-s.more:
		case <-late:
			require.FailNow(t, "too few starts", "%v", s.counts())
		}
	}
}

func (s *starts) counts() map[time.Time]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[time.Time]int{}
	for k, v := range s.ticks {
		out[k] = v
	}
	return out
}

func (s *starts) sum() (n int) {
	for _, c := range s.counts() {
		n += c
	}
	return n
}

// once holds that each tick started once.
func (s *starts) once(t testing.TB) {
	t.Helper()
	for tick, n := range s.counts() {
		require.Equal(t, 1, n, tick)
	}
}

// hand is a clock that a test sets.
type hand struct{ at atomic.Pointer[time.Time] }

func clock(t time.Time) *hand { h := &hand{}; h.set(t); return h }

func (h *hand) set(t time.Time) { h.at.Store(&t) }
func (h *hand) now() time.Time  { return *h.at.Load() }
