// Hung measures what a fleet pays for a member of etcd that hangs: six clients with semaphores, mutexes,
// limits by key and idempotent requests on three servers, each a process, of which one is stopped or is
// defragmented, or all of which have slow disks. Each row is measured twice, with and without what avoids such
// a member, on clusters of its own. The row "login" enables authentication under the fleet, which has
// credentials; of more than six clients each holds a permit and does nothing else.
//
//	go run ./internal/proof/hung [-rows follower,leader,disks,calm,login] [-users] [-clients 6] [-rounds 0] [-calm 8s] [-trouble 15s]
//	go run ./internal/proof/hung -rows defrag-follower,defrag-leader,defrag-moved [-fill 700] [-ttl 5s]
//
// The row of slow disks needs strace.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/procs/server"
)

// roleEnv makes this program one of the servers.
const roleEnv = "HUNG_ROLE"

// progress prints what long work has done so far, to standard error.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func main() {
	if os.Getenv(roleEnv) == "etcd" {
		os.Exit(server.Main(os.Args[1:]))
	}
	rows := flag.String("rows", "follower,leader,disks,calm,login", "what to measure")
	clients := flag.Int("clients", smallFleet, "how many processes the fleet has")
	users := flag.Bool("users", false, "measure the first two rows with users as well")
	rounds := flag.Int("rounds", 0, "have the member hang and continue so often, and count the released keys that exist again")
	calm := flag.Duration("calm", 8*time.Second, "how long the fleet works undisturbed")
	trouble := flag.Duration("trouble", 15*time.Second, "how long a member hangs, or the disks are slow")
	fill := flag.Int("fill", 500, "MB in the database that is defragmented")
	ttl := flag.Duration("ttl", 0, "of the sessions (default: theirs)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for row := range strings.SplitSeq(*rows, ",") {
		for _, auth := range []bool{false, true} {
			if auth != (row == "login") && (!auth || !*users || row != "follower" && row != "leader") {
				continue
			}
			for _, avoids := range []bool{false, true} {
				if (row == "login" || *rounds > 0) && !avoids {
					continue
				}
				m := measurement{row: row, clients: *clients, rounds: *rounds, users: auth, avoids: avoids, calm: *calm, trouble: *trouble, fill: *fill, ttl: *ttl}
				text, err := m.run(ctx)
				if err != nil {
					text = err.Error()
				}
				with := "today's way"
				if avoids {
					with = "avoided"
				}
				if auth {
					row += " with users"
				}
				fmt.Printf("%-22s %-12s %s\n", row, with, text)
				row, _, _ = strings.Cut(row, " ")
			}
		}
	}
}
