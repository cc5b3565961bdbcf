package doctor_test

import (
	"testing"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }
