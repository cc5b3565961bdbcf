// Fleet runs 100 executions under a limit of 5, in a pool of real processes, and
// breaks them in every way: some return an error, some panic, some are stuck
// until their permit is taken back, one in ten is killed, and one process is
// paused until its permit has gone to another. What did not succeed is run again.
//
//	go run ./examples/fleet
//	go run ./examples/fleet -limit 3 -timeline out.svg
//	go run ./examples/fleet -endpoints 10.0.0.1:2379,10.0.0.2:2379
//
// It is the job of the sample "control concurrency of distributed systems" for
// AWS Step Functions, with a semaphore of etcdkit in place of a table and its
// clean-up: see worker.go, the only file that needs it.
//
// Whether the limit holds is measured from outside (referee.go): all processes
// stamp what they do with the one clock of the host, and the referee lays their
// work side by side, without a look at etcd. At the end the program prints a
// table and, unless the output is a terminal, one line of JSON. It ends with status 0
// only if every execution has succeeded, never more than the limit worked at a time,
// no step began after its permit's deadline, and nothing is left of the semaphore's
// queue in etcd. With -timeline it draws the run, with -history it writes all events
// to a file.
//
// What it does not show: that outside effects exclude each other across a pause
// of a process. The step that was in flight when its process was paused ends
// after it goes on, whoever has the permit then; see concurrency.Permit.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/etcdkit/etcdkit/examples/internal/child"
	"github.com/etcdkit/etcdkit/examples/internal/cluster"
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
	c, err := parseFlags(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(2)
	}
	c.sabotage = sabotage()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := fleet(ctx, c)
	interrupted := ctx.Err() != nil
	cancel()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, "fleet: interrupted; all processes have ended")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	case !ok:
		os.Exit(1)
	}
}

// fleet is one run. It tells whether all went as promised.
func fleet(ctx context.Context, c config) (ok bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("not done after %v", c.timeout))
	defer cancel()
	if !child.CanPause {
		fmt.Fprintln(os.Stderr, "fleet: processes cannot be paused on this system: that part is left out")
	}
	out := outputs{c.timeline, c.history}
	if err := out.check(); err != nil {
		return false, err
	}
	endpoints, stop, err := cluster.Open(ctx, c.endpoints)
	if err != nil {
		return false, err
	}
	defer stop()

	s := settings{
		Endpoints: endpoints, Namespace: "fleet-" + strings.ToLower(rand.Text()[:8]), Limit: c.admits(),
		TTL: c.ttl, Margin: c.margin(), MaxHold: c.maxHold(), Deaf: c.sabotage == "deaf",
	}
	watcher, err := observe(ctx, s)
	if err != nil {
		return false, err
	}
	log := newHistory(c)
	p := newPool(c, s, log)
	fmt.Fprintf(os.Stderr, "%d processes, %d executions, at most %d at a time; 21 s with the default flags\n", c.workers, c.executions, c.limit)
	quiet := showProgress(os.Stderr, c, log)
	begun, from := time.Now(), hostclock.Now()
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
	if wrote := out.write(picture, log); err == nil { // a run that failed is worth a look, too
		err = wrote
	}
	if err != nil {
		return false, err
	}
	r := newReport(c, p.plan, log, v, left, elapsed)
	r.write(os.Stdout)
	return r.OK, nil
}
