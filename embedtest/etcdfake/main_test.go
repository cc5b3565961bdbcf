package etcdfake_test

import (
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }
