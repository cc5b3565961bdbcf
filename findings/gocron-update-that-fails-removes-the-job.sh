#!/usr/bin/env bash
# Guess: Scheduler.Update with a crontab that cannot be parsed returns an error and leaves the job as it was.
# Really: it returns the error, and the job is gone: it is removed first, and the new definition is read then. So a
#   configuration with one wrong line, read again while the program runs, ends the job until the next restart. The same
#   goes for a task that is nil, an option that is refused, and a Cron (WithCronImplementation) whose IsValid refuses the
#   crontab. Check the definition with NewJob first, on a scheduler that is not started, or add the job again.
# Versions: github.com/go-co-op/gocron/v2 v2.21.2
# Source: scheduler.go (addOrUpdateJob): "case s.removeJobCh <- id" comes before the options and definition.setup.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off
go mod init probe >/dev/null 2>&1
cat > main.go <<'G'
package main

import (
	"fmt"
	"os"

	"github.com/go-co-op/gocron/v2"
)

func main() {
	s, err := gocron.NewScheduler()
	if err != nil {
		panic(err)
	}
	defer s.Shutdown()
	s.Start()
	task := gocron.NewTask(func() {})
	changed := false
	for _, try := range []struct {
		what    string
		crontab string
		task    gocron.Task
		left    int
	}{
		{"another crontab", "5 * * * *", task, 1},
		{"a crontab with 61 as the minute", "61 * * * *", task, 0},
		{"no task", "5 * * * *", nil, 0},
	} {
		job, err := s.NewJob(gocron.CronJob("0 * * * *", false), task)
		if err != nil {
			panic(err)
		}
		_, err = s.Update(job.ID(), gocron.CronJob(try.crontab, false), try.task)
		left := len(s.Jobs())
		fmt.Printf("Update to %s: error %v, jobs left: %d\n", try.what, err, left)
		changed = changed || left != try.left || (err == nil) != (left == 1)
		_ = s.RemoveJob(job.ID())
	}
	if changed {
		fmt.Println("CHANGED")
		os.Exit(1)
	}
}
G
go get github.com/go-co-op/gocron/v2@v2.21.2 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go list -m github.com/go-co-op/gocron/v2
timeout 60 go run .
