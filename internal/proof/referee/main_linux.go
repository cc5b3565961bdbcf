// Referee shows whether a command that runs under a lock is dead before the next one starts: of
// `etcdkit run`, and of `etcdctl lock` beside it if its binary is given.
//
//	make referee ARGS="-rounds 4"
//
// In each round two commands want one mutex. The first one starts, and something fails: a process of the
// wrapper is killed or stopped, or etcd is, or the connection to it. Then the second one starts. The
// judge is one file and the kernel's lock on it, outside of etcd: each command's first act is to take that
// lock, which all of its descendants inherit, background jobs and daemons too. A command that finds it
// taken overlaps with a process of the earlier one.
//
// Progress goes to stderr, the table to stdout. The exit status is 1 if commands of `etcdkit run` have
// overlapped in a phase that promises otherwise, and 2 if there was no run. Linux only.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/procs"
	"github.com/etcdkit/etcdkit/internal/proof/procs/server"
)

func main() {
	if os.Getenv(serverEnv) != "" {
		os.Exit(server.Main(os.Args[1:]))
	}
	if dir := os.Getenv(workEnv); dir != "" {
		os.Exit(work(dir))
	}
	etcdkit := flag.String("etcdkit", "bin/etcdkit", "binary of etcdkit")
	etcdctl := flag.String("etcdctl", "", "binary of etcdctl; without it, its column is left out")
	rounds := flag.Int("rounds", 20, "rounds of each phase")
	only := flag.String("phase", "", "the one phase to run (default: all)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := referee(ctx, *etcdkit, *etcdctl, *only, *rounds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "referee:", err)
		os.Exit(2)
	}
	os.Exit(code)
}

// referee runs all phases and prints the table.
func referee(ctx context.Context, etcdkit, etcdctl, only string, rounds int) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "referee-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	defer killAll(dir)
	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cluster, err := procs.Start(starting, procs.Options{Binary: self, Env: []string{serverEnv + "=1"}, Dir: filepath.Join(dir, "etcd"), Members: 3})
	if err != nil {
		return 0, err
	}
	defer cluster.Close()
	var wrappers []wrapper
	if etcdkit != "" {
		wrappers = append(wrappers, etcdkitRun(etcdkit))
	}
	if etcdctl != "" {
		wrappers = append(wrappers, etcdctlLock(etcdctl))
	}
	fmt.Printf("| %-36s | %-28s | rounds | overlaps | longest | second gave up |\n|---|---|---|---|---|---|\n", "what fails", "wrapper")
	for _, p := range phases {
		if only != "" && only != p.name {
			continue
		}
		for _, w := range wrappers {
			if p.guard && !w.guarded {
				continue
			}
			r, err := run(ctx, cluster, dir, p, w, rounds)
			if err != nil {
				return 0, fmt.Errorf("%s, %s: %w", p.name, w.name, err)
			}
			fmt.Printf("| %-36s | %-28s | %d | %d | %v | %d |\n", p.name, w.name, r.rounds, r.overlaps, r.longest.Round(time.Millisecond), r.unserved)
			if w.guarded && r.overlaps > 0 && !p.excepted {
				code = 1
			}
		}
	}
	return code, nil
}
