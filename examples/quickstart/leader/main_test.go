package main

import (
	"bufio"
	"bytes"
	"context"
	"log"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
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
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = p.Process.Kill() })
	t.Cleanup(func() { late.Stop() })
	return instance{p, bufio.NewScanner(stderr)}
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

// After a pause term.Err can report the loss before the context does: the loop ends, and the log has the reason.
func TestReasonOfALoss(t *testing.T) {
	etcd := embedtest.Start(t, nil)
	sess, err := concurrency.NewSession(t.Context(), etcd.Client(), "leader", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close(context.WithoutCancel(t.Context()))
	el, err := concurrency.NewElection(sess, "reports")
	if err != nil {
		t.Fatal(err)
	}
	term, err := el.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := etcd.ExpireLease(t.Context(), sess.Lease()); err != nil {
		t.Fatal(err)
	}
	<-term.Context().Done()
	var text bytes.Buffer
	log.SetOutput(&text)
	defer log.SetOutput(os.Stderr)
	if err := lead(t.Context(), term); err != nil { // its context has not ended
		t.Error(err)
	}
	if !strings.Contains(text.String(), ended+": "+term.Err().Error()) || strings.Contains(text.String(), "a pass") {
		t.Errorf("it logged %q, want the reason and no pass", &text)
	}
}
