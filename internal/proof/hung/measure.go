package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

const user, password = "root", "secret"

// measurement is one row.
type measurement struct {
	row           string
	clients       int
	rounds        int // of a member that hangs and continues, or 0
	users, avoids bool
	calm, trouble time.Duration
	fill          int           // MB in the database, of a row that defragments
	ttl           time.Duration // of the sessions

	cluster *procs.Cluster
	tally   *tally
	fleet   []*member
	took    time.Duration // for a defragmentation
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
	m.cluster, err = procs.Start(ctx, procs.Options{Binary: self, Dir: dir, Members: 3, Fsync: m.row == "disks" || m.defragments(), Env: []string{roleEnv + "=etcd"}})
	if err != nil {
		return "", err
	}
	defer m.cluster.Close()
	if m.users && m.row != "login" {
		if err := m.cluster.EnableAuth(ctx, user, password); err != nil {
			return "", err
		}
	}
	if m.defragments() {
		if err := m.fillUp(ctx); err != nil {
			return "", err
		}
	}
	m.tally = newTally()
	defer func() {
		for _, p := range m.fleet {
			_ = p.client.Close()
		}
	}()
	for range m.clients {
		p, err := join(ctx, m.tally, m.cluster.Endpoints(), m.ttl, m.users, m.avoids)
		if err != nil {
			return "", err
		}
		m.fleet = append(m.fleet, p)
	}
	if m.row == "calm" {
		other, err := join(ctx, m.tally, m.cluster.Endpoints(), m.ttl, m.users, !m.avoids)
		if err != nil {
			return "", err
		}
		m.fleet = append(m.fleet, other)
		return m.uncontended(ctx, m.fleet[0], other)
	}
	if m.row == "login" && m.clients > smallFleet {
		return m.hold(ctx)
	}
	if m.rounds > 0 {
		return m.keys(ctx)
	}
	return m.disturb(ctx)
}

// harm begins what the row is about, and returns what ends it.
func (m *measurement) harm(ctx context.Context) (heal func(), err error) {
	if m.row == "login" {
		return func() {}, m.cluster.EnableAuth(ctx, user, password)
	}
	leader, err := m.cluster.WaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	victim := leader
	switch m.row {
	case "disks":
		return m.cluster.SlowDisks(400*time.Millisecond, 0, 1, 2)
	case "follower", "defrag-follower":
		victim = (leader + 1) % 3
	case "defrag-moved":
		if err := m.cluster.MoveLeader(ctx, (leader+1)%3); err != nil {
			return nil, err
		}
	}
	if m.defragments() {
		return m.defragment(ctx, victim), nil
	}
	p := m.cluster.Member(victim)
	return func() { _ = p.Resume() }, p.Pause()
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
	processes := float64(m.clients)
	var lost []string
	for what, n := range m.tally.lost {
		lost = append(lost, fmt.Sprintf("%d × %s", n, what))
	}
	return fmt.Sprintf("grants/s %.0f, then %.0f from the second second on (%.2f); longest gap %.2f s (%s); p99 of a request %.3f s, then %.3f s; Txns/s %.0f, then %.0f; %swarnings of a member left out %d; sessions lost %d; connections of a process %.1f, at most %.1f, in the end %.1f; failed: %s",
		calm, trouble, trouble/calm, gap.Seconds(), queue,
		m.tally.percentile(0.99, begun, struck).Seconds(), m.tally.percentile(0.99, struck, over).Seconds(),
		float64(between-before)/m.calm.Seconds(), float64(after-between)/m.trouble.Seconds(), m.defragmented(), m.tally.refused.Load(), m.tally.ended.Load(),
		float64(open)/processes, float64(m.tally.most.Load())/processes, float64(settled)/processes, strings.Join(append(lost, fmt.Sprintf("%d in all", len(lost))), "; ")), nil
}

func (m *measurement) pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// uncontended measures one caller that acquires and releases, beside one that goes the other way, in turn.
func (m *measurement) uncontended(ctx context.Context, own, other *member) (string, error) {
	const turn = 50
	var took [2]time.Duration
	var txns [2]int64
	n := 0
	for end := time.Now().Add(2 * m.calm); time.Now().Before(end); n += turn {
		for i, p := range []*member{own, other} {
			sem, err := concurrency.NewSemaphore(p.session, fmt.Sprint("alone", i), 4, nil)
			if err != nil {
				return "", err
			}
			begun, before := time.Now(), m.tally.txns.Load()
			for range turn {
				held, err := sem.Acquire(ctx)
				if err != nil {
					return "", err
				}
				if err := held.Release(ctx); err != nil {
					return "", err
				}
			}
			took[i] += time.Since(begun)
			txns[i] += m.tally.txns.Load() - before
		}
	}
	return fmt.Sprintf("an uncontended acquire and its release: %.3f × the time and %.3f × the Txns of the other way (%.3f ms, %.2f Txns; %d of each, in turn)",
		took[0].Seconds()/took[1].Seconds(), float64(txns[0])/float64(txns[1]), took[0].Seconds()*1000/float64(n), float64(txns[0])/float64(n), n), nil
}
