package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A116: after a refused login one call at a time is sent, at growing distances of at most 30 s; the others get the
// refusal that is known. A renewal waits for no turn, but not beside another login. An answer of any other kind
// lets all in again.
func TestLogin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := login{client: clientv3.NewCtxClient(t.Context())}
		enter := func(urgent bool) func(error) {
			how := func() (func(error), error) { return l.enter(t.Context()) }
			if urgent {
				how = l.open
			}
			left, err := how()
			if err != nil {
				require.Equal(t, rpctypes.ErrAuthFailed, err)
				return nil
			}
			return left
		}
		one, two := enter(false), enter(false)
		one(rpctypes.ErrAuthFailed)
		require.Nil(t, enter(false), "it is not its turn")
		two(rpctypes.ErrAuthFailed) // it was sent before
		urgent := enter(true)
		require.NotNil(t, urgent)
		require.Nil(t, enter(true), "one at a time")
		urgent(context.Canceled)
		require.Nil(t, enter(true), "not so soon: another session's would be a login as well")
		require.Nil(t, enter(false), "that says nothing")

		sent, longest, last := 0, time.Duration(0), time.Now()
		for begun := time.Now(); time.Since(begun) < 10*time.Minute; time.Sleep(50 * time.Millisecond) {
			left := enter(false)
			if left == nil {
				continue
			}
			require.Nil(t, enter(false), "one at a time")
			sent++
			longest, last = max(longest, time.Since(last)), time.Now()
			left(rpctypes.ErrAuthFailed)
		}
		require.Less(t, sent, 50)
		require.Greater(t, longest, 20*time.Second)
		require.LessOrEqual(t, longest, 31*time.Second)

		for name, answer := range map[string]error{"allowed": nil, "permission": rpctypes.ErrPermissionDenied, "no space": rpctypes.ErrNoSpace} {
			time.Sleep(time.Minute)
			left := enter(false)
			require.NotNil(t, left, name)
			left(answer)
			again := enter(false)
			require.NotNil(t, again, name)
			require.NotNil(t, enter(false), name)
			again(rpctypes.ErrAuthFailed)
		}
		time.Sleep(time.Minute)
		left := enter(false)
		left(errors.New("an answer was lost"))
		require.NotNil(t, enter(false), "that says nothing: another may try")
	})
}

// reads is a KV whose reads end with an error, or when their ctx does.
type reads struct {
	clientv3.KV

	mu     sync.Mutex
	err    error
	bounds []time.Duration // of each read
}

func (r *reads) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	until, _ := ctx.Deadline()
	r.mu.Lock()
	r.bounds = append(r.bounds, time.Until(until))
	err := r.err
	r.mu.Unlock()
	if err == nil {
		<-ctx.Done()
		err = ctx.Err()
	}
	return nil, err
}

func (r *reads) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *reads) sent() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bounds
}

// A116: if etcd asks for a login, one stream of renewals makes it, or else one read whose bound grows; the other
// calls are sent after that, or, if etcd refuses it, not at all.
func TestLoginThatIsAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &reads{}
		client := clientv3.NewCtxClient(t.Context())
		client.Username, client.KV = "app", kv
		l := login{client: client}
		defer l.use()()
		asked := func() (entered chan error) {
			left, err := l.enter(t.Context())
			require.NoError(t, err)
			left(rpctypes.ErrUserEmpty)
			entered = make(chan error, 1)
			go func() {
				left, err := l.enter(t.Context())
				if err == nil {
					left(nil)
				}
				entered <- err
			}()
			synctest.Wait()
			require.Empty(t, entered)
			return entered
		}

		entered := asked()
		opened, err := l.open()
		require.NoError(t, err)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.enter(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "not sent", "so it leaves no doubt")
		time.Sleep(time.Minute)
		require.Empty(t, entered)
		require.Empty(t, kv.sent(), "the stream logs in")
		opened(nil)
		require.NoError(t, <-entered)

		entered = asked()
		time.Sleep(2 * time.Minute)
		require.Empty(t, entered)
		require.Equal(t, []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, 30 * time.Second}, kv.sent()[:4])
		kv.end(rpctypes.ErrPermissionDenied)
		require.NoError(t, <-entered, "that it may not be read is an answer")

		entered = asked()
		kv.end(rpctypes.ErrAuthFailed)
		require.ErrorIs(t, <-entered, rpctypes.ErrAuthFailed)
	})
}

// A116: a call that ends after the last session of a client asks for no login, which none would make: the next session
// on that client would wait for it.
func TestLoginAfterTheLastSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := clientv3.NewCtxClient(t.Context())
		client.Username = "app"
		l := login{client: client}
		end := l.use()
		left, err := l.enter(t.Context())
		require.NoError(t, err)
		end()
		left(rpctypes.ErrUserEmpty)
		defer l.use()()
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = l.enter(short)
		require.NoError(t, err)
	})
}
