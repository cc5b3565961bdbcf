package idempotency_test

import (
	"os"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/procs/server"
)

// asServer is set in the environment of this binary when it is to be an etcd server.
const asServer = "ETCDKIT_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		os.Exit(server.Main(os.Args[1:]))
	}
	embedtest.Main(m)
}
