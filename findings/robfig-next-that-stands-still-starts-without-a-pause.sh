#!/usr/bin/env bash
# Guess: a Schedule whose Next answers with the time it was asked for, or an earlier one, makes robfig/cron late, or start the job
#   once a second at most.
# Really: the loop starts the job in a goroutine of its own, asks for the next fire time, finds that it has come, and so on,
#   without a pause: thousands of goroutines within a tenth of a second, as long as the schedule stands. Libraries of the family
#   of cronexpr answer so in the hour in which clocks change, so a job that has run for months does it once a year. This script
#   counts 2,000 starts, after which the schedule has no more fire times. SkipIfStillRunning bounds the work, and not the
#   goroutines.
# Versions: github.com/robfig/cron/v3 v3.0.1
# Source: cron.go (run): "if e.Next.After(now) || e.Next.IsZero() { break }", and a timer of now minus now.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off
go mod init probe >/dev/null 2>&1
cat > main.go <<'G'
package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"
)

const most = 2000

// still answers with the time that it is asked for, until it has been asked too often.
type still struct{ asked atomic.Int64 }

func (s *still) Next(t time.Time) time.Time {
	if s.asked.Add(1) > most {
		return time.Time{}
	}
	return t
}

func main() {
	var starts atomic.Int64
	var first, last atomic.Int64
	c := cron.New()
	c.Schedule(&still{}, cron.FuncJob(func() {
		now := time.Now().UnixNano()
		first.CompareAndSwap(0, now)
		last.Store(now)
		starts.Add(1)
	}))
	c.Start()
	time.Sleep(2 * time.Second)
	<-c.Stop().Done()
	took := time.Duration(last.Load() - first.Load())
	fmt.Printf("%d starts in %v\n", starts.Load(), took.Round(time.Millisecond))
	if starts.Load() < most-1 || took > time.Second {
		fmt.Println("CHANGED")
		os.Exit(1)
	}
}
G
go get github.com/robfig/cron/v3@v3.0.1 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go list -m github.com/robfig/cron/v3
timeout 60 go run .
