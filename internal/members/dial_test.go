package members

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// A750: a call that dials a member is left when its ctx ends, and there is one at a time for each member.
func TestDialThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &dials{}
		release, dropped := make(chan struct{}), make(chan int, 1)
		hangs := func() (int, error) { <-release; return 1, nil }
		answers := func() (int, error) { return 2, nil }
		drop := func(v int) { dropped <- v }

		first, end := context.WithTimeout(t.Context(), 5*time.Second)
		defer end()
		begun := time.Now()
		_, err := dialing(first, d, "a", hangs, drop)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(begun))

		second, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		_, err = dialing(second, d, "a", answers, drop)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the first one is under way")
		v, err := dialing(t.Context(), d, "b", answers, drop)
		require.NoError(t, err)
		require.Equal(t, 2, v)

		close(release)
		require.Equal(t, 1, <-dropped)
		v, err = dialing(t.Context(), d, "a", answers, drop)
		require.NoError(t, err)
		require.Equal(t, 2, v)

		refused := errors.New("refused")
		_, err = dialing(t.Context(), d, "a", func() (int, error) { return 0, refused }, drop)
		require.ErrorIs(t, err, refused)
		_, err = dialing(first, d, "a", answers, drop)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, dropped)
	})
}

// A750: the session's connections close also while a probe dials a member that is down, by a client with grpc.WithBlock.
func TestProbeThatDials(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop)
	down, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, down.Close())
	dialed := make(chan struct{}, 100)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{lis.Addr().String()}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithBlock(), grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) { //nolint:staticcheck // what a program may set
			if at == down.Addr().String() {
				select {
				case dialed <- struct{}{}:
				default:
				}
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", at)
		})},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	s := newCalls(client, zap.NewNop())
	a := &avoidance{calls: s, ctx: s.ctx, replies: make(chan reply)}
	s.wg.Go(func() { a.probe("http://"+down.Addr().String(), nil) })
	<-dialed
	closed := make(chan struct{})
	go func() { s.close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the connections do not close while a probe dials")
	}
}
