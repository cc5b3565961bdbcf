package exporter_test

import (
	"os"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/procs/server"
)

// roleEnv makes the test binary one of the etcd servers that a test stops.
const roleEnv = "EXPORTER_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "etcd" {
		os.Exit(server.Main(os.Args[1:]))
	}
	embedtest.Main(m)
}
