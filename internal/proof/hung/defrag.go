package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// defragments reports whether the row defragments a member: a follower, the leader, or the leader once another leads.
func (m *measurement) defragments() bool { return strings.HasPrefix(m.row, "defrag-") }

// fillUp writes so much that a defragmentation takes a while.
func (m *measurement) fillUp(ctx context.Context) error {
	value := strings.Repeat("x", 1_000_000)
	for i := range m.fill {
		if _, err := m.cluster.Client().Put(ctx, fmt.Sprintf("fill/%d", i), value); err != nil {
			return fmt.Errorf("fill etcd: %w", err)
		}
	}
	return nil
}

// defragment begins to defragment a member, and returns what waits for the end.
func (m *measurement) defragment(ctx context.Context, victim int) (wait func()) {
	begun, ended := time.Now(), make(chan error, 1)
	go func() {
		_, err := m.cluster.MemberClient(victim).Defragment(ctx, m.cluster.Endpoints()[victim])
		m.took = time.Since(begun)
		ended <- err
	}()
	return func() {
		if err := <-ended; err != nil {
			m.tally.fail("defragment", err)
		}
	}
}

// defragmented says how long it took, and what that cost.
func (m *measurement) defragmented() string {
	if !m.defragments() {
		return ""
	}
	return fmt.Sprintf("%d MB took %.1f s; ", m.fill, m.took.Seconds())
}
