package main

import (
	"bufio"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/examples/child"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

func TestMain(m *testing.M) { progtest.Main(m, main) }

// instance is one that was started, with its log.
type instance struct {
	*progtest.Program
	lines *bufio.Scanner
}

func start(t *testing.T, endpoints ...string) instance {
	t.Helper()
	p := progtest.New(t, "-endpoints", strings.Join(endpoints, ","))
	p.Stderr = nil
	log, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = p.Process.Kill() })
	t.Cleanup(func() { late.Stop() })
	return instance{p, bufio.NewScanner(log)}
}

// until reads the log up to a line with one of some texts, and returns which it was.
func (i instance) until(t *testing.T, texts ...string) string {
	t.Helper()
	for i.lines.Scan() {
		for _, text := range texts {
			if strings.Contains(i.lines.Text(), text) {
				return text
			}
		}
	}
	t.Fatalf("it ended without %q", texts)
	return ""
}

// What an instance logs of its term.
const begins, ended = "the term begins", "the term has ended"

func (i instance) stop(t *testing.T) {
	t.Helper()
	if err := i.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// Two instances: when the leader gets SIGTERM it resigns, and ends without an error and without waiting for its lease;
// the other one leads.
func TestOneLeads(t *testing.T) {
	if !child.CanPause {
		t.Skip("no SIGTERM here")
	}
	etcd := embedtest.Start(t, nil)
	first := start(t, etcd.Endpoints()...)
	first.until(t, begins)
	second := start(t, etcd.Endpoints()...)
	first.stop(t)
	if got := first.until(t, ended, begins); got == begins {
		t.Fatal("it leads again after SIGTERM")
	}
	if first.lines.Scan() {
		t.Errorf("after its term it wrote %q", first.lines.Text())
	}
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
	second.until(t, begins)
	second.stop(t)
	for second.lines.Scan() {
	}
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
	leases, err := etcd.Client().Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(leases.Leases) > 0 && !etcd.External() {
		t.Errorf("leases are left: %v", leases.Leases)
	}
}

// F14: with no etcd there, the program ends by itself and says why.
func TestWithoutEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits as long as the program does: 5 s")
	}
	progtest.WithoutEtcd(t, run)
}
