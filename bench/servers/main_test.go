package servers

import (
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) {
	Main()
	embedtest.Main(m)
}
