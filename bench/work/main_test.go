package work

import (
	"testing"

	"github.com/etcdkit/etcdkit/bench/servers"
	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) {
	servers.Main() // the etcd of the tests is this program
	Main()         // and so are the workers
	embedtest.Main(m)
}
