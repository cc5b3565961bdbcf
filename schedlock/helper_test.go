package schedlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// soon bounds what should happen at once.
const soon = testkit.Soon

var (
	closed = testkit.Closed
	ctxT   = testkit.Context
	quick  = testkit.Quick
	brisk  = testkit.Brisk
)

// fixture is one etcd and a prefix of the test's own.
type fixture struct{ testkit.Fixture }

func shared(t testing.TB) fixture { return fixture{testkit.Shared(t)} }
func own(t testing.TB) fixture    { return fixture{testkit.Own(t, 1)} }

// instance is one process of the fleet, as etcd sees it.
type instance struct {
	*schedlock.Locker
	sess   *concurrency.Session
	client *embedtest.Client
}

func (f fixture) instance(so *concurrency.SessionOptions, lo *schedlock.Options) instance {
	f.T.Helper()
	s, c := f.Session(so)
	l, err := schedlock.New(s, schedlock.Hasty(lo))
	require.NoError(f.T, err)
	return instance{l, s, c}
}

// losing returns the options of a session with a hook that closes lost when the session loses its lease.
func losing(so *concurrency.SessionOptions) (_ *concurrency.SessionOptions, lost <-chan struct{}) {
	var o concurrency.SessionOptions
	if so != nil {
		o = *so
	}
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	o.Hooks = testkit.Trace{SessionLost: func(clientv3.LeaseID, error) { end() }}.Hooks()
	return &o, ended
}

// answer is the result of a Do in a goroutine.
type answer struct {
	res schedlock.Result
	err error
}

// do calls Do in a goroutine with a function that waits for end. started receives its run.
func do(ctx context.Context, l *schedlock.Locker, name string, end <-chan struct{}, opts ...schedlock.CallOption) (started <-chan *schedlock.Run, done <-chan answer) {
	runs, answers := make(chan *schedlock.Run, 10), make(chan answer, 1)
	go func() {
		res, err := l.Do(ctx, name, func(ctx context.Context, r *schedlock.Run) error {
			runs <- r
			select {
			case <-end:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, opts...)
		answers <- answer{res, err}
	}()
	return runs, answers
}

func nothing(context.Context, *schedlock.Run) error { return nil }

// tick is a fire time a while ago, the same each time.
func tick(n int) time.Time { return anHourAgo.Add(time.Duration(n) * time.Second) }

var anHourAgo = time.Now().Add(-time.Hour).Truncate(time.Minute)

func closedCh() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}

func got[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	return testkit.Got(t, ch, what)
}
