package cron_test

import (
	"os"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/clitest"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/cron"
)

// clockAhead is how far the clock of a process that is the command is ahead, for `jobs run`.
const clockAhead = "ETCDKIT_TEST_CLOCK_AHEAD"

func TestMain(m *testing.M) {
	if ahead, err := time.ParseDuration(os.Getenv(clockAhead)); err == nil {
		cron.SetWallClock(func() time.Time { return time.Now().Add(ahead) })
	}
	clitest.Main(m)
}
