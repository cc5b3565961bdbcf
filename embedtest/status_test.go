package embedtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// A112: a member that is crashed or stopped does not close its storage while it answers a call of Status: etcd
// would read the closed storage, and end the process. Later calls are refused.
func TestStatusOfAMemberThatStops(t *testing.T) {
	ownServersOnly(t)
	t.Parallel()
	for name, stop := range map[string]func(*Cluster, int) error{"crash": (*Cluster).Crash, "stop": (*Cluster).Stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Start(t, nil)
			put(t, c.Client(), "k", "1")
			r := c.members[0].running()
			asked, answer, answered := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			call := func(handler grpc.UnaryHandler) error {
				_, err := r.status(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/etcdserverpb.Maintenance/Status"}, handler)
				return err
			}
			go func() {
				answered <- call(func(context.Context, any) (any, error) {
					close(asked)
					<-answer
					return nil, nil
				})
			}()
			<-asked
			stopped := make(chan error, 1)
			go func() { stopped <- stop(c, 0) }()
			select {
			case <-r.etcd.Server.StopNotify():
				t.Error("the storage is closed")
			case <-stopped:
				t.Error("the member has ended")
			case <-time.After(100 * time.Millisecond):
			}
			close(answer)
			require.NoError(t, <-answered)
			require.NoError(t, <-stopped)
			require.ErrorIs(t, call(nil), rpctypes.ErrGRPCStopped)
			require.NoError(t, c.Restart(within(t, patience), 0))
			require.Equal(t, "1", value(t, c, "k"))
		})
	}
}
