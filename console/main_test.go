package console_test

import (
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
)

// asProcess is what this program does if a benchmark has started it as a process of its own, or nil.
var asProcess func()

func TestMain(m *testing.M) {
	if asProcess != nil {
		asProcess()
		return
	}
	embedtest.Main(m)
}
