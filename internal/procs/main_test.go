package procs_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/procs"
)

// roleEnv makes the test binary one of the processes that the tests run.
const roleEnv = "PROCS_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		embedtest.Main(m)
	case "etcd":
		os.Exit(etcd(os.Args[1:]))
	case "obedient": // ends with its input, telling that it runs
		go tick()
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "deaf":
		tick()
	case "parent": // starts a child, tells who it is, and stays
		p, err := procs.Run(procs.Command{Name: "child", Path: os.Args[0], Env: []string{roleEnv + "=deaf"}, Log: os.Args[1]})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.PID())
		_ = bufio.NewScanner(os.Stdin).Scan()
	}
}

func tick() {
	for {
		fmt.Println("tick")
		time.Sleep(time.Millisecond)
	}
}

// etcd is a server that understands as much of etcd's flags as a Cluster passes.
// It saves the tests from having to build one.
func etcd(args []string) int {
	cfg := embed.NewConfig()
	f := flag.NewFlagSet("etcd", flag.ContinueOnError)
	urls := func(name string, to *[]url.URL) {
		f.Func(name, "", func(s string) error {
			u, err := url.Parse(s)
			if err == nil {
				*to = []url.URL{*u}
			}
			return err
		})
	}
	f.StringVar(&cfg.Name, "name", "", "")
	f.StringVar(&cfg.Dir, "data-dir", "", "")
	urls("listen-client-urls", &cfg.ListenClientUrls)
	urls("advertise-client-urls", &cfg.AdvertiseClientUrls)
	urls("listen-peer-urls", &cfg.ListenPeerUrls)
	urls("initial-advertise-peer-urls", &cfg.AdvertisePeerUrls)
	f.StringVar(&cfg.InitialCluster, "initial-cluster", "", "")
	f.StringVar(&cfg.LogLevel, "log-level", "", "")
	f.StringVar(&cfg.Logger, "logger", "", "")
	f.BoolVar(&cfg.UnsafeNoFsync, "unsafe-no-fsync", false, "")
	f.BoolVar(&cfg.SocketOpts.ReusePort, "socket-reuse-port", false, "")
	f.UintVar(&cfg.TickMs, "heartbeat-interval", cfg.TickMs, "")
	f.UintVar(&cfg.ElectionMs, "election-timeout", cfg.ElectionMs, "")
	if err := f.Parse(args); err != nil {
		return 2
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stderr, <-e.Err())
	return 1
}

// role is the environment of a process with a role.
func role(name string) []string { return []string{roleEnv + "=" + name} }

// lines counts the lines that a process has written.
func lines(p *procs.Process) int { return strings.Count(p.Tail(1<<20), "\n") }
