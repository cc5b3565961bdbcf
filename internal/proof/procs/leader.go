package procs

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// statusTimeout bounds the question to one member, which may be stopped.
const statusTimeout = 500 * time.Millisecond

// Leader returns the index of the member that leads as far as a majority of all
// members says, or -1 while there is none. Members that are killed or stopped
// have no say: what a stopped one would answer when it continues is old.
func (c *Cluster) Leader(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var mu sync.Mutex
	votes, ids := map[uint64]int{}, map[uint64]int{}
	var wg sync.WaitGroup
	for i, m := range c.members {
		if p := m.process(); p.Ended() || p.Paused() {
			continue
		}
		wg.Go(func() {
			st, err := m.asks().Status(ctx, m.client)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			votes[st.Leader]++
			ids[st.Header.GetMemberId()] = i
		})
	}
	wg.Wait()
	for id, n := range votes {
		if i, ok := ids[id]; ok && 2*n > len(c.members) {
			return i
		}
	}
	return -1
}

// Says returns the index of the member that member i takes for the leader, or -1.
func (c *Cluster) Says(ctx context.Context, i int) int {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	ask := func(m *member) (leader, own uint64) {
		st, err := m.asks().Status(ctx, m.client)
		if err != nil {
			return 0, 0
		}
		return st.Leader, st.Header.GetMemberId()
	}
	leader, _ := ask(c.members[i])
	for j, m := range c.members {
		if _, own := ask(m); leader != 0 && own == leader {
			return j
		}
	}
	return -1
}

// WaitLeader waits for a leader that a majority knows, and returns its index. It
// returns an error, that of ctx, only when ctx ends first.
func (c *Cluster) WaitLeader(ctx context.Context) (int, error) {
	for {
		if i := c.Leader(ctx); i >= 0 {
			return i, nil
		}
		select {
		case <-ctx.Done():
			return -1, fmt.Errorf("no leader: %w", ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// transferTimeout is after how long a transfer begins again: etcd gives it up after an election timeout, and
// does not report that.
const transferTimeout = 5 * time.Second

// MoveLeader makes a member the leader, by etcd's own transfer, and returns when a
// majority follows it. It begins another transfer if one was given up, until ctx ends.
func (c *Cluster) MoveLeader(ctx context.Context, to int) error {
	for {
		from, err := c.WaitLeader(ctx)
		if err != nil || from == to {
			return err
		}
		err = c.transfer(ctx, from, to)
		select {
		case <-ctx.Done():
			return fmt.Errorf("move the leader from member %d to %d: %w (last: %v)", from, to, ctx.Err(), err) //nolint:errorlint // the last error is only shown
		case <-time.After(pollEvery):
		}
	}
}

// transfer asks the leader once to transfer the leadership.
func (c *Cluster) transfer(ctx context.Context, from, to int) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	st, err := c.members[to].asks().Status(ctx, c.members[to].client)
	if err == nil {
		_, err = c.members[from].asks().MoveLeader(ctx, st.Header.GetMemberId())
	}
	return err
}
