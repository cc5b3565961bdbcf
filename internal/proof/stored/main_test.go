package stored

import (
	"testing"

	"github.com/etcdkit/etcdkit/internal/build"
)

// A test program has no versions. The records are those of a service that has them.
func TestMain(m *testing.M) {
	build.Current = func() build.Versions { return build.Versions{Etcdkit: "v0.1.0", Program: "example.com/shop@v1.4.2"} }
	m.Run()
}
