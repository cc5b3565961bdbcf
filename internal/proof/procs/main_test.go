package procs_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
	"github.com/etcdkit/etcdkit/internal/proof/procs/server"
)

// roleEnv makes the test binary one of the processes that the tests run.
const roleEnv = "PROCS_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		embedtest.Main(m)
	case "etcd":
		os.Exit(server.Main(os.Args[1:]))
	case "obedient": // reports that it runs, and ends with its input
		go tick()
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "deaf":
		tick()
	case "parent": // starts a child, prints its process ID, and stays
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

// role is the environment of a process with a role.
func role(name string) []string { return []string{roleEnv + "=" + name} }

// lines counts the lines that a process has written.
func lines(p *procs.Process) int { return strings.Count(p.Tail(1<<20), "\n") }
