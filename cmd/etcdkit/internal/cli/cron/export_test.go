package cron

import (
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/guarded"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/crontab"
)

// What tests with an etcd reach.
const (
	Unbounded = unbounded
	ReadEvery = readEvery
)

// SetWallClock sets the clock by which ticks have come.
func SetWallClock(now func() time.Time) { wallClock = now }

// PrintCheck is `cron --check` at a time.
func PrintCheck(c *verb.Call, jobs []crontab.Job, now time.Time) error {
	v := cronRun{Execution: guarded.Execution{Call: c}}
	return v.print(jobs, now)
}
