// Fleet runs 100 executions under a limit of 5, in a pool of real processes, and makes them
// fail: some executions return an error, some panic, and some are stuck until their permit
// ends (MaxHold). One process per ten executions is killed, and one process is paused until
// another process holds its permit. An execution that failed is retried.
//
//	go run ./examples/fleet
//	go run ./examples/fleet -limit 3 -timeline out.svg
//	go run ./examples/fleet -endpoints 10.0.0.1:2379,10.0.0.2:2379
//
// The task is that of the sample "control concurrency of distributed systems" for AWS Step
// Functions, with a semaphore of etcdkit in place of a table and its clean-up. Only worker.go
// needs the semaphore.
//
// A referee measures from outside whether the limit held (referee.go): all processes add
// timestamps of one clock of the host to their events, and the referee counts how many are
// working at the same time, without reading etcd. At the end the program prints a table and,
// unless the output is a terminal, one line of JSON. Its exit status is 0 only if every
// execution succeeded, never more executions than the limit were working at the same time, no
// step began after its permit's deadline, and the semaphore's queue in etcd is empty. With
// -timeline the program draws the run, and with -history it writes all events to a file.
//
// Not shown: that external effects exclude each other across a pause of a process. A step that
// is in progress when its process is paused ends after the process is continued, even if
// another process holds the permit by then. See concurrency.Permit.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/hostclock"
)

func main() {
	if s := os.Getenv(workerEnv); s != "" {
		if err := workerMain(s, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "fleet: worker:", err)
			os.Exit(1)
		}
		return
	}
	program.Demo("fleet", parseFlags, fleet)
}

// fleet runs once.
func fleet(ctx context.Context, c config, progress io.Writer) (r report, err error) {
	c.sabotage = sabotage()
	if !child.CanPause {
		fmt.Fprintln(os.Stderr, "fleet: this system cannot pause processes: no process is paused")
	}
	out := outputs{c.timeline, c.history}
	if err := out.check(); err != nil {
		return r, err
	}
	err = c.Run(ctx, 1, progress, func(ctx context.Context, at program.Place) (err error) {
		r, err = fleetAt(ctx, c, at, out)
		return err
	})
	return r, err
}

// fleetAt is fleet on an etcd.
func fleetAt(ctx context.Context, c config, at program.Place, out outputs) (r report, err error) {
	s := settings{Place: at, Limit: c.admits(), TTL: c.TTL, Margin: c.Margin(), MaxHold: c.maxHold(), Unchecked: c.sabotage == "unchecked"}
	watcher, err := observe(ctx, s)
	if err != nil {
		return r, err
	}
	log := newHistory(c)
	p := newPool(c, s, log)
	fmt.Fprintf(os.Stderr, "%d worker processes, %d executions, limit %d; a run with the default flags takes about 21 s\n", c.workers, c.executions, c.limit)
	begun, from := time.Now(), hostclock.Now()
	quiet := program.ShowProgress(os.Stderr, 3*time.Second, func() string { return log.progress().line(c, time.Since(begun)) })
	err = p.run(ctx)
	elapsed := time.Since(begun)
	quiet()
	left := 0
	if err == nil {
		left, err = watcher.leftBehind(ctx)
	}
	if closed := watcher.close(); err == nil && closed != nil {
		err = fmt.Errorf("clean up: %w", closed)
	}
	v := judge(log.events, c.limit)
	picture := newPicture(c, from, log.events, v, watcher.taken)
	if wrote := out.write(picture, log); err == nil { // written for a failed run too
		err = wrote
	}
	if err != nil {
		return r, err
	}
	return newReport(c, p.plan, log, v, left, elapsed), nil
}
