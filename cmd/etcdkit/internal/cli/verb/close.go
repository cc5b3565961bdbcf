package verb

import (
	"io"
	"time"

	"google.golang.org/grpc"
)

// closeTime bounds what a verb waits for the end of its connections.
const closeTime = time.Second

// connected is a client of etcd's.
type connected interface {
	io.Closer
	ActiveConnection() *grpc.ClientConn
}

// Close closes a client of etcd's, and waits for that no longer than a second: the process is about to end. Close of the
// client waits for the end of its watches, and if etcd refuses one at the moment in which it is cancelled, that never
// comes (client 3.6.16). It has not come to its connection then, which is closed here.
func Close(client connected) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = client.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeTime):
		_ = client.ActiveConnection().Close()
	}
}
