#!/usr/bin/env bash
# Guess: Shutdown waits for the running jobs without using the processor, as WaitGroup.Wait does.
# Really: it polls in a loop without a pause until the last job has ended or WithStopTimeout (10 s by default) has passed,
#   which keeps one core busy. In a container with a limit of one core the jobs that are to end share it with this loop, and
#   the limit throttles both: a shutdown makes the jobs slower for which it waits. This script shuts down a scheduler whose
#   one job sleeps for a second, and reads the processor time of the process.
# Versions: github.com/go-co-op/gocron/v2 v2.21.2
# Source: executor.go (stop): "for time.Now().Before(timeout) && count < 3 { select { … default: } }".
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off
go mod init probe >/dev/null 2>&1
cat > main.go <<'G'
package main

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// used returns the processor time that the process uses during f.
func used(f func()) time.Duration {
	at := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			panic(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := at()
	f()
	return at() - before
}

func main() {
	s, err := gocron.NewScheduler()
	if err != nil {
		panic(err)
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func() {
		close(begun)
		<-ended
	}))
	if err != nil {
		panic(err)
	}
	s.Start()
	<-begun
	calm := used(func() { time.Sleep(time.Second) })
	time.AfterFunc(time.Second, func() { close(ended) })
	busy := used(func() {
		if err := s.Shutdown(); err != nil {
			panic(err)
		}
	})
	fmt.Printf("the job runs for a second: %v of processor time\n", calm.Round(time.Millisecond))
	fmt.Printf("Shutdown waits for it for a second: %v of processor time\n", busy.Round(time.Millisecond))
	if calm > 100*time.Millisecond || busy < 300*time.Millisecond {
		fmt.Println("CHANGED")
		os.Exit(1)
	}
}
G
go get github.com/go-co-op/gocron/v2@v2.21.2 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go list -m github.com/go-co-op/gocron/v2
timeout 60 go run .
