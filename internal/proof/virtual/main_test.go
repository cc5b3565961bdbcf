package virtual

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) {
	// Hundreds of small heaps come one after the other. Garbage is collected when there is half a GiB of it.
	debug.SetGCPercent(-1)
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(512 << 20)
	}
	embedtest.Main(m)
}
