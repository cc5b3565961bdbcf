package processes

import (
	"os"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/procs/server"
)

// serverEnv makes the test binary an etcd server.
const serverEnv = "CHAOS_SERVER"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(WorkerEnv) != "":
		os.Exit(Worker())
	case os.Getenv(serverEnv) != "":
		os.Exit(server.Main(os.Args[1:]))
	}
	embedtest.Main(m)
}
