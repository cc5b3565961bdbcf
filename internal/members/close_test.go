package members

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// full is a connection that takes nothing from some time on, as one to a process that is stopped.
type full struct {
	net.Conn
	stuck  *atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (f *full) Write(b []byte) (int, error) {
	if f.stuck.Load() {
		<-f.closed
	}
	return f.Conn.Write(b)
}

func (f *full) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.Conn.Close()
}

// lessor and watcher are parts of a client whose Close is the test's.
type lessor struct {
	clientv3.Lease
	close func()
}

func (l lessor) Close() error { l.close(); return nil }

type watcher struct {
	clientv3.Watcher
	close func()
}

func (w watcher) Close() error { w.close(); return nil }

// A745: Close of etcd's Watcher may wait for ever. Close of a session waited with it, beyond the end of its ctx.
func TestWatcherThatDoesNotClose(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"it closes": false, "it waits": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				end, took := make(chan struct{}), time.Second
				if !waits {
					close(end)
					took = 0
				}
				var closed []string
				e := &Etcd{
					Lease: lessor{close: func() { closed = append(closed, "lease") }}, Watcher: watcher{close: func() { closed = append(closed, "watcher"); <-end }}, calls: bare(t, ""),
				}
				begun := time.Now()
				e.Close()
				synctest.Wait()
				require.Equal(t, took, time.Since(begun))
				require.Equal(t, []string{"lease", "watcher"}, closed)
				require.Error(t, e.calls.ctx.Err(), "its connections are closed in any case")
				if waits {
					close(end)
				}
			})
		})
	}
}

// M18: gRPC waits for up to 5 s when it closes a connection that takes nothing. All calls of the session waited for
// that, beyond the end of their ctx.
func TestConnectionThatDoesNotClose(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop)
	var stuck atomic.Bool
	cc, err := grpc.NewClient("passthrough:///"+lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
			return &full{Conn: conn, stuck: &stuck, closed: make(chan struct{})}, err
		}))
	require.NoError(t, err)
	cc.Connect()
	for state := cc.GetState(); state != connectivity.Ready; state = cc.GetState() {
		require.True(t, cc.WaitForStateChange(t.Context(), state))
	}
	stuck.Store(true)
	s := bare(t, "")
	a := &avoidance{calls: s, judge: judged(false), conns: map[string]*conn{"c": {endpoint: "c", cc: cc}}}
	begun := time.Now()
	require.True(t, a.left())
	ctx, c := s.begin(t.Context(), false)
	require.NoError(t, s.end(ctx, c, nil))
	require.Less(t, time.Since(begun), 3*time.Second)
}
