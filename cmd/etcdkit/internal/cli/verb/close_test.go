package verb

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// closing is a client whose Close takes its time, and leaves the connection to the test.
type closing struct {
	conn *grpc.ClientConn
	wait func()
}

func (c closing) Close() error { c.wait(); return nil }

func (c closing) ActiveConnection() *grpc.ClientConn { return c.conn }

// Close of etcd's client may never return: its connection does not outlive the verb all the same.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, err := grpc.NewClient("passthrough:///etcd", grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		begun, ends := time.Now(), make(chan struct{})

		Close(closing{conn, func() { time.Sleep(closeTime / 2) }})
		require.Equal(t, closeTime/2, time.Since(begun), "it is awaited as long as it may end")
		require.Equal(t, connectivity.Idle, conn.GetState())

		begun = time.Now()
		Close(closing{conn, func() { <-ends }})
		require.Equal(t, closeTime, time.Since(begun))
		require.Equal(t, connectivity.Shutdown, conn.GetState())
		close(ends)
	})
}
