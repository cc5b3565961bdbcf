package members_test

import (
	"os"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/procs/server"
)

// roleEnv makes the test binary one of the etcd servers that the tests run.
const roleEnv = "MEMBERS_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "etcd" {
		os.Exit(server.Main(os.Args[1:]))
	}
	embedtest.Main(m)
}
