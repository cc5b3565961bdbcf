package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

const (
	clients        = 6
	user, password = "root", "secret"
)

// measurement is one row.
type measurement struct {
	row           string
	users, avoids bool
	calm, trouble time.Duration

	cluster *procs.Cluster
	tally   *tally
	fleet   []*member
}

// run measures a row on a cluster of its own, and returns its text.
func (m *measurement) run(ctx context.Context) (text string, err error) {
	dir, err := os.MkdirTemp("", "hung-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	m.cluster, err = procs.Start(ctx, procs.Options{Binary: self, Dir: dir, Members: 3, Fsync: m.row == "disks", Env: []string{roleEnv + "=etcd"}})
	if err != nil {
		return "", err
	}
	defer m.cluster.Close()
	if m.users {
		if err := m.enableUsers(ctx); err != nil {
			return "", err
		}
	}
	m.tally = newTally()
	defer func() {
		for _, p := range m.fleet {
			_ = p.client.Close()
		}
	}()
	for range clients {
		p, err := join(ctx, m.tally, m.cluster.Endpoints(), m.users, m.avoids)
		if err != nil {
			return "", err
		}
		m.fleet = append(m.fleet, p)
	}
	if m.row == "calm" {
		return m.uncontended(ctx)
	}
	return m.disturb(ctx)
}

func (m *measurement) enableUsers(ctx context.Context) error {
	c := m.cluster.Client()
	for _, step := range []func() error{
		func() error { _, err := c.UserAdd(ctx, user, password); return err },
		func() error { _, err := c.UserGrantRole(ctx, user, "root"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("enable users: %w", err)
		}
	}
	return nil
}

// harm begins what the row is about, and returns what ends it.
func (m *measurement) harm(ctx context.Context) (heal func(), err error) {
	leader, err := m.cluster.WaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	victim := leader
	switch m.row {
	case "disks":
		return m.slowDisks()
	case "follower":
		victim = (leader + 1) % 3
	}
	p := m.cluster.Member(victim)
	return func() { _ = p.Resume() }, p.Pause()
}

// slowDisks has each sync of each server's disk take 0.4 s longer.
func (m *measurement) slowDisks() (heal func(), err error) {
	var tracers []*exec.Cmd
	heal = func() {
		for _, t := range tracers {
			_ = t.Process.Signal(os.Interrupt)
			_ = t.Wait()
		}
	}
	for i := range 3 {
		t := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:delay_enter=400000", "-p", strconv.Itoa(m.cluster.Member(i).PID())) //nolint:gosec // the process is ours
		if err := t.Start(); err != nil {
			heal()
			return nil, fmt.Errorf("slow disks: %w", err)
		}
		tracers = append(tracers, t)
	}
	return heal, nil
}

// disturb lets the fleet work, undisturbed and disturbed.
func (m *measurement) disturb(ctx context.Context) (string, error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for i, p := range m.fleet {
		if err := p.work(working, &wg, m.tally, i); err != nil {
			return "", err
		}
	}
	if err := m.pass(ctx, 2*time.Second); err != nil {
		return "", err
	}
	begun, before := time.Now(), m.tally.txns.Load()
	if err := m.pass(ctx, m.calm); err != nil {
		return "", err
	}
	struck, between, open := time.Now(), m.tally.txns.Load(), m.tally.open.Load()
	heal, err := m.harm(ctx)
	if err != nil {
		return "", err
	}
	err = m.pass(ctx, m.trouble)
	over, after := time.Now(), m.tally.txns.Load()
	heal()
	if err != nil {
		return "", err
	}
	_ = m.pass(ctx, 6*time.Second)
	settled := m.tally.open.Load()
	stop()
	wg.Wait()
	calm, trouble := m.tally.rate("", begun, struck), m.tally.rate("", struck.Add(2*time.Second), over)
	gap, queue := m.tally.gap(struck, over)
	var lost []string
	for what, n := range m.tally.lost {
		lost = append(lost, fmt.Sprintf("%d × %s", n, what))
	}
	return fmt.Sprintf("grants/s %.0f, then %.0f from the second second on (%.2f); longest gap %.2f s (%s); p99 of a request %.3f s, then %.3f s; Txns/s %.0f, then %.0f; warnings of a member left out %d; connections of a process %.1f, at most %.1f, in the end %.1f; failed: %s",
		calm, trouble, trouble/calm, gap.Seconds(), queue,
		m.tally.percentile(0.99, begun, struck).Seconds(), m.tally.percentile(0.99, struck, over).Seconds(),
		float64(between-before)/m.calm.Seconds(), float64(after-between)/m.trouble.Seconds(), m.tally.refused.Load(),
		float64(open)/clients, float64(m.tally.most.Load())/clients, float64(settled)/clients, strings.Join(append(lost, fmt.Sprintf("%d in all", len(lost))), "; ")), nil
}

func (m *measurement) pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// uncontended measures one caller that acquires and releases.
func (m *measurement) uncontended(ctx context.Context) (string, error) {
	sem, err := concurrency.NewSemaphore(m.fleet[0].session, "alone", 4, nil)
	if err != nil {
		return "", err
	}
	n := 0
	begun, before := time.Now(), m.tally.txns.Load()
	for end := begun.Add(m.calm); time.Now().Before(end); n++ {
		p, err := sem.Acquire(ctx)
		if err != nil {
			return "", err
		}
		if err := p.Release(ctx); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%.3f ms and %.2f Txns for an uncontended acquire and its release", time.Since(begun).Seconds()*1000/float64(n), float64(m.tally.txns.Load()-before)/float64(n)), nil
}
