// Cron is a fleet of processes with one schedule, of which exactly one shall run each fire time: the
// problem that ShedLock was written for. The conditions are hard: the processes' clocks differ, one job
// takes no time and one takes longer than its interval, processes are killed and paused in the
// middle of runs, and all processes are restarted, one by one, while jobs fire.
//
//	go run -C demos ./cron
//	go run -C demos ./cron -skew 1s -ttl 1s
//	go run -C demos ./cron -endpoints 10.0.0.1:2379,10.0.0.2:2379
//
// In the same processes and at the same times, each job also runs under a lock by name that is
// released when the run ends, as other lockers for gocron have it (naive.go).
//
// The starts are measured from outside: all processes stamp their events with the one clock of the
// host, and the parent counts (judge.go). From etcd it reads the history, which must agree. At the end
// it prints tables and, unless the output is a terminal, one line of JSON. Its status is 0 only
// if no attempt at a tick started twice, no two runs of a job worked at the same time, and no tick was
// lost except those of a killed or paused process in a job without Retries, and those that a
// measured standstill of the machine explains (standstill.go).
package main

import (
	"fmt"
	"os"

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

func main() {
	if s := os.Getenv(workerEnv); s != "" {
		if err := workerMain(s, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "cron: worker:", err)
			os.Exit(1)
		}
		return
	}
	program.Demo("cron", parseFlags, demo)
}
